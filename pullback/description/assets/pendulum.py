"""The n-link pendulum of Qiao et al. (ICML 2021): the numbers are those of pendulum{n}.urdf in diffarticulated."""

from pullback.core.errors import DescriptionError
from pullback.core.files import check_limit
from pullback.description.assets.rows import X, joint, link, sphere
from pullback.description.tree import Tree

LENGTH = 0.5


def tree(n: int) -> Tree:
    """Return a pendulum of `n` links along y, each 0.5 m long with its mass at its end, turning about x.

    The damping and friction in the original files are left out: the paper's engine never applied them.
    """
    if n < 1:
        raise DescriptionError(f"a pendulum of {n} links; give one or more, such as 'pendulum3'")
    check_limit("links", n, f"pendulum{n} has", DescriptionError)
    end = (0, LENGTH, 0)
    first = (1.0, end, (0.00494875, 0.00494174, 0.002219))
    other = (2.16, end, (0.00539427, 0.0048979, 0.00311573))
    links = [link("world")]
    joints = []
    for i in range(n):
        links.append(link(f"link{i}", *(first if i == 0 else other), sphere(0.05, end)))
        parent, xyz = ("world", (0, 0, 0)) if i == 0 else (f"link{i - 1}", end)
        joints.append(joint(f"joint{i}", "continuous", parent, f"link{i}", xyz, axis=X))
    links.append(link("link-1", 0.01, (0, 0, 0), (0.0001, 0.0001, 0.0001)))
    joints.append(joint("jointfix", "fixed", f"link{n - 1}", "link-1", end))
    return Tree(f"pendulum{n}", links, joints, source=f"pendulum{n}")
