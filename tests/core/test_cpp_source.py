"""Rewrites of the C++ that Warp writes: what they change, and what they leave."""

from pullback.core.codegen import for_large_module
from pullback.core.cpp_source import addresses, outlined, plain_statements, without_adjoints, without_copies

FUNCTION = """
struct Part_1
{
    wp::int32 rows;
};

// file.py:1
static wp::float64 total_0(
    Part_1& var_part,
    wp::array_t<wp::float64> var_x,
    wp::int32 var_w)
{
    // primal vars
    Part_1 var_0;
    Part_1 var_1;
    wp::int32 var_2;
    wp::float64* var_3;
    wp::float64 var_4;
    wp::float64 var_5;
    wp::vec_t<3, wp::float64> var_6;
    wp::vec_t<3, wp::float64> var_7;
    bool var_8;
    var_1 = wp::load(var_9);
    var_0 = wp::copy(var_1);
    var_2 = wp::mul((var_0).rows, var_w);
    var_3 = wp::address(var_x, var_2, var_w);
    var_4 = wp::load(var_3);
    var_5 = wp::add(var_4, var_4);
    var_7 = wp::add(var_6, var_6);
    var_5 = wp::where(var_8, var_4, var_5);
    var_7 = wp::where(var_8, var_6, var_7);
    var_4 = wp::neg(var_5);
    wp::array_store(var_x, var_2, var_w, var_4);
    return var_5;
}


// file.py:1
static void adj_total_0(
    Part_1& var_part)
{
}

extern "C" {
// a kernel
}
"""


def test_numbers_are_added_as_in_cpp_and_vectors_by_warp():
    source = plain_statements(FUNCTION)
    assert "var_4 = *var_3;" in source
    assert "var_5 = var_4 + var_4;" in source
    assert "var_7 = wp::add(var_6, var_6);" in source
    assert "var_5 = var_8 ? var_4 : var_5;" in source
    assert "var_7 = wp::where(var_8, var_6, var_7);" in source
    assert "var_4 = -var_5;" in source


def test_adjoints_and_comments_are_left_out_and_nothing_else():
    source = without_adjoints(FUNCTION)
    assert "adj_total_0" not in source
    assert "//" not in source
    assert 'extern "C" {\n}' in source
    assert source.count("var_") == FUNCTION.count("var_") - 1


def test_a_function_of_ours_may_have_the_name_of_an_adjoint():
    ours = FUNCTION.replace(" total_0(", " adj_total_0(").replace(
        "static void adj_total_0", "static void adj_adj_total_0"
    )
    source = without_adjoints(ours)
    assert " adj_total_0(" in source
    assert "adj_adj_total_0" not in source


def test_parts_of_structs_are_pointed_to_unless_they_are_written_to():
    source = without_copies(FUNCTION, "Part_1")
    assert "Part_1* at_var_0;" in source
    assert "at_var_1 = var_9;" in source
    assert "at_var_0 = &(*at_var_1);" in source
    assert "((*at_var_0)).rows" in source
    written = FUNCTION.replace("    var_4 = wp::neg(var_5);", "    (var_0).rows = var_2;")
    assert "Part_1 var_0;" in without_copies(written, "Part_1")


def test_elements_are_found_by_our_addresses():
    source = addresses(FUNCTION, "HERE\n")
    assert source.index("HERE") < source.index("struct Part_1")
    assert "var_3 = pullback_at(var_x, var_2, var_w);" in source
    assert "*pullback_at(var_x, var_2, var_w) = var_4;" in source


def test_only_large_functions_are_marked():
    assert outlined(FUNCTION, 100) == FUNCTION
    assert "static WP_NOINLINE wp::float64 total_0(" in outlined(FUNCTION, 3)


def test_a_module_without_structs_and_functions_stays_as_it_is():
    assert for_large_module("int x;\n") == "int x;\n"
