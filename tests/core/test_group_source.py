"""The C++ of kernels for groups of worlds: what is written once more in lanes, and where lanes choose by themselves."""

import re

from pullback.core.groups import in_groups

SOURCE = """#define int(x) cast_int(x)

struct Job_1
{
    wp::float64 dt;
    wp::array_t<wp::float64> shares;
    wp::array_t<wp::vec_t<3, wp::float64>> vertices;
    wp::int32 steps;

    Job_1() = default;
};


static wp::float64 halved_0(
    wp::float64 var_x)
{
    bool var_0;
    bool var_1;
    wp::float64 var_2;
    var_0 = (var_x < var_y);
    var_2 = var_0 ? var_x : var_y;
    var_1 = (var_x < var_2);
    if (var_1) {
        var_2 = var_x;
    }
    return var_2;
}


static wp::float64 alone_0(
    wp::float64 var_x)
{
    return var_x;
}


static void stage_in_lanes_0(
    Job_1& var_job,
    wp::int32 var_w,
    wp::array_t<wp::float64> var_scratch)
{
    halved_0(var_x);
}


struct wp_args_forward_1 {
    Job_1 job;
    wp::array_t<wp::float64> scratch;
};


template <bool wp_linear_contiguous>
static void forward_1_cpu_kernel_forward(
    wp_args_forward_1 *_wp_args)
{
    stage_in_lanes_0(var_job, var_0, var_scratch);
    alone_0(var_1);
}


template <bool wp_linear_contiguous>
static WP_FORCEINLINE void forward_1_cpu_forward_tasks(
    wp_args_forward_1 *_wp_args)
{
    for (size_t task_index = 0; task_index < dim->size; ++task_index)
    {
        forward_1_cpu_kernel_forward<wp_linear_contiguous>(*dim, task_index, _wp_args);
    }
}
"""


def test_functions_in_lanes_and_those_they_call_are_written_once_more():
    written = in_groups(SOURCE, "float64")
    copies = written[written.rindex("namespace in_lanes {") : written.index("struct wp_args_forward_1")]
    assert re.findall(r"\b(\w+_0)\($", copies, re.MULTILINE) == ["halved_0", "stage_in_lanes_0"]
    assert "float64" not in copies
    # and the others are as they were
    assert written.count("static wp::float64 halved_0(") == written.count("static wp::float64 alone_0(") == 1
    assert (
        "in_lanes::stage_in_lanes_0(static_cast<pullback_args*>(_wp_args)->in_lanes_job, wp::in_lanes_of(var_0)"
        in written
    )
    assert "task_index += wp::LANES" in written


def test_lanes_choose_by_themselves_where_there_is_no_branch():
    written = in_groups(SOURCE, "float64")
    assert "wp::lane_mask var_0;" in written
    assert "var_2 = wp::choose(var_0, var_x, var_y);" in written
    assert "wp::lane_mask var_1;" not in written


def test_structs_are_copied_with_their_arrays_of_numbers():
    written = in_groups(SOURCE, "float64")
    copy = written[written.index("static void pullback_spread(in_lanes::Job_1& to") :]
    copy = copy[: copy.index("}\n")]
    for line in ("pullback_spread(to.dt,", "pullback_spread(to.shares,", "to.steps = from.steps;"):
        assert line in copy
    # nothing in lanes reads these
    assert "vertices" not in copy
