"""KUKA LBR iiwa 7 R800, seven joints: the numbers are those of iiwa7.urdf in differentiable-robot-model."""

from math import pi

from pullback.description.assets.rows import Z, capsule, cylinder, joint, link
from pullback.description.tree import Limits, Tree

# position limits of 120, 170 and 175 degrees [rad]
NARROW = 2.0943951023931953
WIDE = 2.9670597283903604
FLANGE = 3.0543261909900763

LINKS = (
    # mass, centre of mass, inertia xx xy xz yy yz zz
    (5, (-0.1, 0, 0.07), (0.05, 0, 0, 0.06, 0, 0.03)),
    (3.4525, (0, -0.03, 0.12), (0.02183, 0, 0, 0.007703, -0.003887, 0.02083)),
    (3.4821, (0.0003, 0.059, 0.042), (0.02076, 0, -0.003626, 0.02179, 0, 0.00779)),
    (4.05623, (0, 0.03, 0.13), (0.03204, 0, 0, 0.00972, 0.006227, 0.03042)),
    (3.4822, (0, 0.067, 0.034), (0.02178, 0, 0, 0.02075, -0.003625, 0.007785)),
    (2.1633, (0.0001, 0.021, 0.076), (0.01287, 0, 0, 0.005708, -0.003946, 0.01112)),
    (2.3466, (0, 0.0006, 0.0004), (0.006509, 0, 0, 0.006259, 0.00031891, 0.004527)),
    (3.129, (0, 0, 0.02), (0.01464, 0.0005912, 0, 0.01465, 0, 0.002872)),
)
JOINTS = (
    # xyz, rpy, position limit
    ((0, 0, 0.15), (0, 0, 0), WIDE),
    ((0, 0, 0.19), (pi / 2, 0, pi), NARROW),
    ((0, 0.21, 0), (pi / 2, 0, pi), WIDE),
    ((0, 0, 0.19), (pi / 2, 0, 0), NARROW),
    ((0, 0.21, 0), (-pi / 2, pi, 0), WIDE),
    ((0, 0.06070, 0.19), (pi / 2, 0, 0), NARROW),
    ((0, 0.081, 0.06070), (-pi / 2, pi, 0), FLANGE),
)


def tree() -> Tree:
    """Return the arm; its shapes are fitted to the original's collision meshes."""
    shapes = (
        cylinder(0.118, (-0.014, 0, 0), (-0.014, 0, 0.157)),
        capsule(0.080, (0, 0, 0.047), (0, -0.042, 0.190)),
        capsule(0.080, (0, -0.002, 0.042), (0, 0.148, -0.001)),
        capsule(0.080, (0, -0.005, 0.003), (0, 0.041, 0.189)),
        capsule(0.080, (0, -0.002, 0.042), (0, 0.148, -0.001)),
        capsule(0.073, (0, 0, -0.014), (0, 0.033, 0.185)),
        capsule(0.075, (0, -0.031, 0.055), (0, 0.031, 0.055)),
        cylinder(0.052, (0, 0, -0.001), (0, 0, 0.044)),
    )
    links = [link(f"iiwa_link_{i}", *row, shape) for i, (row, shape) in enumerate(zip(LINKS, shapes))]
    joints = [
        joint(
            f"iiwa_joint_{i}",
            "revolute",
            parent=f"iiwa_link_{i - 1}",
            child=f"iiwa_link_{i}",
            xyz=xyz,
            rpy=rpy,
            axis=Z,
            limits=Limits(-limit, limit, velocity=10, effort=300),
            damping=0.5,
        )
        for i, (xyz, rpy, limit) in enumerate(JOINTS, start=1)
    ]
    links.append(link("iiwa_link_ee"))
    joints.append(joint("iiwa_joint_ee", "fixed", "iiwa_link_7", "iiwa_link_ee", (0, 0, 0.045)))
    return Tree("iiwa7", links, joints, source="iiwa7")
