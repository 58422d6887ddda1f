"""What torch.compile is told: kernels are launched between compiled pieces, never inside of one."""

import torch


def leave_graph() -> None:
    """End the graph that torch.compile is tracing; with fullgraph=True that is an error, which says what to do."""
    if torch.compiler.is_compiling():
        torch._dynamo.graph_break(
            msg="Pullback's kernels cannot be part of a compiled graph; leave out fullgraph=True, and torch.compile "
            "runs them between compiled pieces, gradients included, or compile your own functions alone"
        )
