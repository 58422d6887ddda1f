// stages of a step for a group of worlds in the lanes of a vector, see groups.py; NUMBER is float or double
namespace wp {

#if defined(__AVX512F__)
static constexpr int LANES = 64 / sizeof(NUMBER);
#else
static constexpr int LANES = 32 / sizeof(NUMBER);
#endif
static constexpr unsigned ALL_LANES = (1u << LANES) - 1;
typedef NUMBER lane_vector __attribute__((ext_vector_type(LANES), aligned(sizeof(NUMBER))));
typedef bool lane_bools __attribute__((ext_vector_type(LANES)));

// Lanes that took another way than the first are counted, for each thread by itself: the table is that of a hash, where
// threads that meet make each other redo work, no more.
static unsigned pullback_odd[256][16];
static WP_FORCEINLINE unsigned* pullback_counts()
{
    const size_t thread = reinterpret_cast<size_t>(__builtin_thread_pointer());
    return pullback_odd[((thread >> 12) * 0x9e3779b1u >> 24) & 255];
}
static WP_NOINLINE void pullback_disagree(unsigned chosen)
{
    const unsigned odd = chosen & 1 ? ~chosen & ALL_LANES : chosen;
    unsigned* counts = pullback_counts();
    for (int l = 0; l < LANES; ++l)
        if (odd >> l & 1)
            __atomic_fetch_add(counts + l, 1u, __ATOMIC_RELAXED);
}

// What a comparison finds in each lane; as a condition, the way that the first lane takes.
typedef decltype(lane_vector() < lane_vector()) lane_integers;
struct lane_mask
{
    lane_integers m;

    lane_mask() = default;
    WP_FORCEINLINE lane_mask(lane_integers x) : m(x) {}
    WP_FORCEINLINE lane_mask(bool x) : m((lane_integers)(x ? -1 : 0)) {}
    WP_FORCEINLINE operator bool() const
    {
        const lane_bools bools = __builtin_convertvector(m, lane_bools);
        unsigned chosen = 0;
        __builtin_memcpy(&chosen, &bools, sizeof(bools));
        chosen &= ALL_LANES;
        if (__builtin_expect(chosen != 0 && chosen != ALL_LANES, 0))
            pullback_disagree(chosen);
        return chosen & 1;
    }
};

struct lane_product;

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
    WP_FORCEINLINE lanes& operator+=(const lane_product& b);
    WP_FORCEINLINE lanes& operator-=(const lane_product& b);
};

// A product within an expression: one that is added to or subtracted from is fused with that, as the compiler fuses
// those of plain numbers (-ffp-contract=on), so that results are the same bit for bit.
struct lane_product
{
    lane_vector a, b;
    WP_FORCEINLINE operator lanes() const { return lanes(a * b); }
    WP_FORCEINLINE lane_product operator-() const { return {-a, b}; }
};

static WP_FORCEINLINE lanes fused(lane_vector a, lane_vector b, lane_vector c)
{
#if defined(__FMA__) || defined(__aarch64__)
    return __builtin_elementwise_fma(a, b, c);
#else
    return a * b + c;
#endif
}
WP_FORCEINLINE lanes& lanes::operator+=(const lane_product& b) { return *this = fused(b.a, b.b, v); }
WP_FORCEINLINE lanes& lanes::operator-=(const lane_product& b) { return *this = fused(-b.a, b.b, v); }

static WP_FORCEINLINE lane_product operator*(lanes a, lanes b) { return {a.v, b.v}; }
static WP_FORCEINLINE lanes operator/(lanes a, lanes b) { return a.v / b.v; }
static WP_FORCEINLINE lanes operator+(lanes a, lanes b) { return a.v + b.v; }
static WP_FORCEINLINE lanes operator-(lanes a, lanes b) { return a.v - b.v; }
static WP_FORCEINLINE lanes operator+(lane_product a, lanes b) { return fused(a.a, a.b, b.v); }
static WP_FORCEINLINE lanes operator+(lanes a, lane_product b) { return fused(b.a, b.b, a.v); }
static WP_FORCEINLINE lanes operator+(lane_product a, lane_product b) { return fused(a.a, a.b, b.a * b.b); }
static WP_FORCEINLINE lanes operator-(lane_product a, lanes b) { return fused(a.a, a.b, -b.v); }
static WP_FORCEINLINE lanes operator-(lanes a, lane_product b) { return fused(-b.a, b.b, a.v); }
static WP_FORCEINLINE lanes operator-(lane_product a, lane_product b) { return fused(a.a, a.b, -(b.a * b.b)); }
static WP_FORCEINLINE lanes add(lanes a, lanes b) { return a + b; }
static WP_FORCEINLINE lanes sub(lanes a, lanes b) { return a - b; }
static WP_FORCEINLINE lanes mul(lanes a, lanes b) { return a * b; }
static WP_FORCEINLINE lanes div(lanes a, lanes b) { return a / b; }
static WP_FORCEINLINE lanes neg(lanes a) { return -a; }
static WP_FORCEINLINE lanes approx_rcp(lanes a) { return lanes(NUMBER(1)) / a; }

static WP_FORCEINLINE lane_mask operator<(lanes a, lanes b) { return a.v < b.v; }
static WP_FORCEINLINE lane_mask operator>(lanes a, lanes b) { return a.v > b.v; }
static WP_FORCEINLINE lane_mask operator<=(lanes a, lanes b) { return a.v <= b.v; }
static WP_FORCEINLINE lane_mask operator>=(lanes a, lanes b) { return a.v >= b.v; }
static WP_FORCEINLINE lane_mask operator==(lanes a, lanes b) { return a.v == b.v; }
static WP_FORCEINLINE lane_mask operator!=(lanes a, lanes b) { return a.v != b.v; }
static WP_FORCEINLINE int cast_int(lanes a)
{
    const lanes first(NUMBER(a.v[0]));
    (void)bool(lane_mask(a.v == first.v));
    return static_cast<int>(a.v[0]);
}

static WP_FORCEINLINE lanes choose(lane_mask c, lanes a, lanes b) { return c.m ? a.v : b.v; }
template <typename T> static WP_FORCEINLINE T choose(lane_mask c, T a, T b) { return bool(c) ? a : b; }

template <typename F> static WP_FORCEINLINE lanes each_lane(lanes a, F f)
{
    lanes r;
    for (int l = 0; l < LANES; ++l)
        r.v[l] = f(NUMBER(a.v[l]));
    return r;
}
template <typename F> static WP_FORCEINLINE lanes each_lane(lanes a, lanes b, F f)
{
    lanes r;
    for (int l = 0; l < LANES; ++l)
        r.v[l] = f(NUMBER(a.v[l]), NUMBER(b.v[l]));
    return r;
}
static WP_FORCEINLINE lanes sin(lanes a) { return each_lane(a, [](NUMBER x) { return wp::sin(x); }); }
static WP_FORCEINLINE lanes cos(lanes a) { return each_lane(a, [](NUMBER x) { return wp::cos(x); }); }
static WP_FORCEINLINE lanes sqrt(lanes a) { return __builtin_elementwise_sqrt(a.v); }
static WP_FORCEINLINE lanes abs(lanes a) { return __builtin_elementwise_abs(a.v); }
static WP_FORCEINLINE lanes sign(lanes a) { return each_lane(a, [](NUMBER x) { return wp::sign(x); }); }
static WP_FORCEINLINE lanes min(lanes a, lanes b)
{
    return each_lane(a, b, [](NUMBER x, NUMBER y) { return wp::min(x, y); });
}
static WP_FORCEINLINE lanes max(lanes a, lanes b)
{
    return each_lane(a, b, [](NUMBER x, NUMBER y) { return wp::max(x, y); });
}
static WP_FORCEINLINE lanes clamp(lanes x, lanes a, lanes b) { return min(max(a, x), b); }
static WP_FORCEINLINE bool isfinite(lanes a)
{
    const lane_vector none = a.v - a.v;
    return lane_mask(none == none);
}

// arrays of the same memory, a row of which is a vector
static WP_FORCEINLINE array_t<lanes> in_lanes_of(const array_t<NUMBER>& a)
{
    return *reinterpret_cast<const array_t<lanes>*>(&a);
}
static WP_FORCEINLINE int in_lanes_of(int a) { return a; }

// copies of what all worlds share: numbers and their arrays
static WP_FORCEINLINE void pullback_spread(lanes& to, NUMBER from, lanes*&) { to = from; }
static WP_FORCEINLINE void pullback_spread(array_t<lanes>& to, const array_t<NUMBER>& from, lanes*& room)
{
    to = in_lanes_of(from);
    if (!from.data)
        return;
    to.data = room;
    to.strides[0] = sizeof(lanes);
    for (int i = 0; i < from.shape[0]; ++i)
        *room++ = from.data[i];
}

}
