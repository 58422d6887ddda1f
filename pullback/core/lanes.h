
// several worlds in the lanes of a vector, see lanes.py; NUMBER is float or double
namespace wp {

#if defined(__AVX512F__)
static constexpr int LANES = 64 / sizeof(NUMBER);
#else
static constexpr int LANES = 32 / sizeof(NUMBER);
#endif
typedef NUMBER lane_vector __attribute__((ext_vector_type(LANES), aligned(sizeof(NUMBER))));

struct lanes
{
    lane_vector v;

    lanes() = default;
    WP_FORCEINLINE lanes(NUMBER x) : v((lane_vector)x) {}
    template <typename T, typename = decltype(NUMBER(T()))> WP_FORCEINLINE lanes(T x) : lanes(NUMBER(x)) {}
    WP_FORCEINLINE lanes(lane_vector x) : v(x) {}
    WP_FORCEINLINE lanes operator-() const { return -v; }
    WP_FORCEINLINE lanes& operator+=(lanes b) { v += b.v; return *this; }
    WP_FORCEINLINE lanes& operator-=(lanes b) { v -= b.v; return *this; }
    WP_FORCEINLINE lanes& operator*=(lanes b) { v *= b.v; return *this; }
    WP_FORCEINLINE lanes& operator/=(lanes b) { v /= b.v; return *this; }
};

static WP_FORCEINLINE lanes operator+(lanes a, lanes b) { return a.v + b.v; }
static WP_FORCEINLINE lanes operator-(lanes a, lanes b) { return a.v - b.v; }
static WP_FORCEINLINE lanes operator*(lanes a, lanes b) { return a.v * b.v; }
static WP_FORCEINLINE lanes operator/(lanes a, lanes b) { return a.v / b.v; }
static WP_FORCEINLINE lanes add(lanes a, lanes b) { return a + b; }
static WP_FORCEINLINE lanes sub(lanes a, lanes b) { return a - b; }
static WP_FORCEINLINE lanes mul(lanes a, lanes b) { return a * b; }
static WP_FORCEINLINE lanes div(lanes a, lanes b) { return a / b; }
static WP_FORCEINLINE lanes neg(lanes a) { return -a; }
static WP_FORCEINLINE lanes approx_rcp(lanes a) { return lanes(NUMBER(1)) / a; }

// a special case is taken where it is one in all lanes
static WP_FORCEINLINE bool operator==(lanes a, lanes b)
{
    bool all = true;
    for (int l = 0; l < LANES; ++l)
        all &= a.v[l] == b.v[l];
    return all;
}
static WP_FORCEINLINE bool operator!=(lanes a, lanes b) { return !(a == b); }

template <typename F> static WP_FORCEINLINE lanes each_lane(lanes a, F f)
{
    lanes r;
    for (int l = 0; l < LANES; ++l)
        r.v[l] = f(NUMBER(a.v[l]));
    return r;
}
static WP_FORCEINLINE lanes sin(lanes a) { return each_lane(a, [](NUMBER x) { return wp::sin(x); }); }
static WP_FORCEINLINE lanes cos(lanes a) { return each_lane(a, [](NUMBER x) { return wp::cos(x); }); }
static WP_FORCEINLINE lanes sqrt(lanes a) { return each_lane(a, [](NUMBER x) { return wp::sqrt(x); }); }
static WP_FORCEINLINE lanes sign(lanes a) { return each_lane(a, [](NUMBER x) { return wp::sign(x); }); }

// rows are neighbours, and the world is the only one
static WP_FORCEINLINE lanes* address(const array_t<lanes>& a, int i) { return a.data + i; }
static WP_FORCEINLINE lanes* address(const array_t<lanes>& a, int row, int) { return a.data + row; }
static WP_FORCEINLINE void array_store(const array_t<lanes>& a, int row, int, lanes x) { a.data[row] = x; }

static WP_FORCEINLINE NUMBER* number_at(const array_t<lanes>& a, int row, size_t world)
{
    char* at = reinterpret_cast<char*>(a.data) + row * size_t(a.strides[0]) + world * size_t(a.strides[1]);
    return reinterpret_cast<NUMBER*>(at);
}

// whether all worlds have the same rows, so that they are read or summed once; cotangents have lanes without a world
static WP_FORCEINLINE bool is_shared(const array_t<lanes>& a, char role) { return a.strides[1] == 0 && role != 'c'; }

// Calls a kernel for LANES worlds at a time. Roles of its arrays, in their order: r it reads, c it reads and is linear
// in (a cotangent), w it writes, or adds to zeros, s scratch. The first scratch array begins with room for the others,
// and for the arrays of numbers among its constants.
template <int N, int M, typename Call>
static WP_FORCEINLINE void pullback_in_lanes(
    array_t<lanes>* arrays, const char (&roles)[N], array_t<lanes>* (&constants)[M], size_t worlds, Call call)
{
    constexpr int count = N - 1;
    array_t<lanes> given[count];
    lanes* room = nullptr;
    for (int k = count - 1; k >= 0; --k) {
        given[k] = arrays[k];
        if (roles[k] == 's' && arrays[k].data)
            room = arrays[k].data;
    }
    for (int k = 0; k < M - 1; ++k) {
        const NUMBER* numbers = reinterpret_cast<const NUMBER*>(constants[k]->data);
        constants[k]->data = room;
        for (int i = 0; i < constants[k]->shape[0]; ++i)
            *room++ = numbers[i];
    }
    bool is_first = true;
    for (int k = 0; k < count; ++k) {
        array_t<lanes>& a = arrays[k];
        if (!a.data)
            continue;
        a.strides[0] = sizeof(lanes);
        a.strides[1] = 0;
        if (roles[k] == 's') {
            if (is_first)
                a.data = room;
            is_first = false;
            continue;
        }
        a.data = room;
        room += a.shape[0];
        // what all worlds share
        if (is_shared(given[k], roles[k]))
            for (int row = 0; row < a.shape[0]; ++row)
                a.data[row] = roles[k] == 'w' ? NUMBER(0) : *number_at(given[k], row, 0);
    }
    for (size_t first = 0; first < worlds; first += LANES) {
        const int there = worlds - first < LANES ? int(worlds - first) : LANES;
        for (int k = 0; k < count; ++k) {
            if (!given[k].data || roles[k] == 's' || is_shared(given[k], roles[k]))
                continue;
            const int rows = given[k].shape[0];
            if (roles[k] == 'w') {
                for (int row = 0; row < rows; ++row)
                    arrays[k].data[row] = NUMBER(0);
                continue;
            }
            // lanes without a world repeat the last one, with cotangents of zero
            for (int l = 0; l < LANES; ++l) {
                NUMBER* to = reinterpret_cast<NUMBER*>(arrays[k].data) + l;
                const bool is_empty = l >= there && roles[k] == 'c';
                const size_t world = first + (l < there ? l : there - 1);
                for (int row = 0; row < rows; ++row)
                    to[row * LANES] = is_empty ? NUMBER(0) : *number_at(given[k], row, world);
            }
        }
        call();
        for (int k = 0; k < count; ++k) {
            if (!given[k].data || roles[k] != 'w' || is_shared(given[k], 'w'))
                continue;
            for (int l = 0; l < there; ++l) {
                const NUMBER* from = reinterpret_cast<const NUMBER*>(arrays[k].data) + l;
                for (int row = 0; row < given[k].shape[0]; ++row)
                    *number_at(given[k], row, first + l) = from[row * LANES];
            }
        }
    }
    // cotangents of what worlds share: the sum over lanes
    for (int k = 0; k < count; ++k) {
        if (!given[k].data || roles[k] != 'w' || !is_shared(given[k], 'w'))
            continue;
        for (int row = 0; row < given[k].shape[0]; ++row)
            for (int l = 0; l < LANES; ++l)
                *number_at(given[k], row, 0) += arrays[k].data[row].v[l];
    }
}

}
