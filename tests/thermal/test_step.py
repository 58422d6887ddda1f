"""The explicit step forward: its operator, its states against the reference, its ledger."""

import numpy as np
import pytest
import torch

import pullback.thermal as th
from pullback.thermal.geometry import conductances, corner_areas, corner_volumes, distinct_shapes
from tests.reference import thermal as reference
from tests.thermal.cases import OTHER, TOY, leaves, reference_states, wall


def test_conductances_and_volumes_agree_with_a_direct_assembly():
    mesh = wall().mesh
    corners = mesh.nodes[mesh.elements]
    G, V = conductances(corners), corner_volumes(corners)
    for e, x in enumerate(corners):
        K, volumes = reference.element_matrices(x)
        # heat into corner i: sum of G_ij (u_j - u_i) = -(K u)_i
        assert np.allclose(np.diag(G[e].sum(1)) - G[e], K, atol=1e-15 * np.abs(K).max() * 100)
        assert np.allclose(V[e], volumes, rtol=1e-13)
    assert V.sum() == pytest.approx(mesh.volumes.sum(), rel=1e-12)


def test_faces_share_out_their_area():
    square = np.array([[[0, 0, 0], [2, 0, 0], [2, 3, 0], [0, 3, 0]]], dtype=float)
    assert np.allclose(corner_areas(square), 1.5)


def test_equal_elements_share_their_conductances():
    mesh = th.box((0.004, 0.003, 0.002), 0.001, origin=(1.0, -2.0, 0.3))
    first, shape = distinct_shapes(mesh.nodes[mesh.elements])
    assert len(first) == 1
    assert (shape == 0).all()


def test_states_agree_with_the_reference():
    process = wall()
    power, parameters = leaves(process)
    with torch.no_grad():
        states = reference_states(process, power, parameters)
        history = process.run(power, snapshots=range(process.steps + 1), **parameters)
    # hot enough that it melts and freezes again
    assert states.max() > TOY.liquidus
    assert states[-1].max() < TOY.liquidus
    assert torch.allclose(history.snapshots, states, rtol=0, atol=1e-10)
    assert torch.equal(history.snapshots[-1], history.final)


def test_two_materials_agree_with_the_reference():
    process = wall(material={"plate": OTHER, "build": TOY}, duration=0.8)
    power = torch.full((process.steps,), 300.0, dtype=torch.float64, requires_grad=True)
    inputs = [torch.tensor(m.conductivity.copy(), requires_grad=True) for m in process.materials]
    capacities = [torch.tensor(m.heat_capacity.copy(), requires_grad=True) for m in process.materials]
    densities = [torch.tensor(m.density, dtype=torch.float64, requires_grad=True) for m in process.materials]
    held = {int(node): 330.0 for node in process.mesh.node_set("bottom")}
    part = reference.GrowingPart(
        process.mesh.nodes, process.mesh.elements, process.births, process.dt, process.steps,
        material=process.element_material, held=held,
    )  # fmt: skip
    tables = [
        reference.Table(m.temperatures, k, cp, m.latent_heat, m.solidus, m.liquidus, rho)
        for m, k, cp, rho in zip(process.materials, inputs, capacities, densities)
    ]
    positions = torch.as_tensor(process.positions)
    air = {
        name: process.values[name] for name in ("convection", "emissivity", "ambient", "initial", "birth_temperature")
    }
    states = reference.run(part, tables, power, positions, process.on, radius=2e-3, absorptivity=0.4, **air)
    names = [m.name for m in process.materials]
    history = process.run(
        power,
        snapshots=range(process.steps + 1),
        conductivity=dict(zip(names, inputs)),
        heat_capacity=dict(zip(names, capacities)),
        density=dict(zip(names, densities)),
    )
    assert torch.allclose(history.snapshots, states, rtol=0, atol=1e-10)
    assert abs(history.ledger.error) < 1e-13
    W = torch.randn(states.shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    every = [power, *inputs, *capacities, *densities]
    for ours, theirs in zip(torch.autograd.grad((history.snapshots * W).sum(), every),
                            torch.autograd.grad((states * W).sum(), every)):  # fmt: skip
        assert torch.allclose(ours, theirs, rtol=1e-10, atol=1e-12 * float(theirs.abs().max()))


@pytest.mark.parametrize("options", [{}, {"fixed": None}, {"material": {"plate": OTHER, "build": TOY}}])
def test_the_ledger_closes(options):
    process = wall(**options)
    power = 200.0 + 150.0 * torch.rand(process.steps, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    ledger = process.run(power).ledger
    assert ledger.laser == pytest.approx(0.4 * float(power[process.on].sum()) * process.dt, rel=1e-13)
    # new material comes in at 420 K, above the first temperature of its table
    assert ledger.births > 0
    assert ledger.convection < 0
    assert ledger.radiation < 0
    assert ledger.stored > 0
    assert (ledger.fixed == 0) == ("fixed" in options)
    assert abs(ledger.error) < 1e-13


def test_the_ledger_closes_in_float32():
    assert abs(wall(torch.float32).run(300.0).ledger.error) < 1e-5


def test_float32_is_close_to_float64():
    wide, narrow = (wall(dtype).run(300.0).final.double() for dtype in (torch.float64, torch.float32))
    assert float((wide - narrow).abs().max()) < 0.05


def test_the_beam_gives_exactly_its_power_wherever_it_is():
    process = wall()
    weights = process.laser.weights
    positions = torch.as_tensor(process.positions)[process.laser.lit]
    for radius in (1e-4, 5e-4, 2e-3):
        share = weights(positions, torch.full((4,), radius, dtype=torch.float64))
        total = torch.zeros(process.steps, dtype=torch.float64).index_add(0, process.laser.entry_step, share)
        assert torch.allclose(
            total[torch.as_tensor(process.on)], torch.ones(int(process.on.sum())).double(), rtol=1e-14
        )


def test_probes_see_what_their_corners_have():
    process = wall()
    nodes = process.mesh.nodes
    middle = nodes[process.mesh.elements[-1]].mean(0)
    at_points = process.run(300.0, probes=process.probes(np.stack([nodes[0], middle])), snapshots=range(61))
    at_nodes = process.run(300.0, probes=process.probes(nodes=[0]))
    corner_mean = at_points.snapshots[:, process.mesh.elements[-1].tolist()].mean(1)
    assert torch.allclose(at_points.probes[:, 1], corner_mean, rtol=1e-9)
    assert torch.allclose(at_points.probes[:, 0], at_nodes.probes[:, 0], rtol=1e-9)
    assert at_points.probes.shape == (process.steps + 1, 2)


def test_a_uniform_part_in_air_of_its_temperature_stays_as_it_is():
    process = wall(ambient=500.0, initial=500.0, birth_temperature=500.0, fixed=None)
    assert torch.equal(process.run(0.0).final, torch.full((len(process.mesh.nodes),), 500.0).double())


def test_nodes_stand_as_their_elements_do():
    """The thread of the first half of the elements has the first half of the nodes; a box numbers them otherwise."""
    mesh = th.box((0.01, 0.01, 0.01), 1e-3)
    process = th.Process(mesh, material=th.constant_material(10.0, 500.0, 8000.0), dt=1e-3, duration=1e-2)
    growth = process.growth
    half = growth.corners[: len(growth.corners) // 2]
    assert (half < len(growth.user) // 2).mean() > 0.85
    assert (mesh.elements[: len(mesh.elements) // 2] < len(mesh.nodes) // 2).mean() < 0.6
