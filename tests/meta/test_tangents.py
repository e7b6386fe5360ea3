"""Tangents with reused outputs against torch's own forward mode, and differences against both."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.flop_counter import FlopCounterMode

from icda.meta import Forward, look_ahead
from icda.meta.forward import FixedSigns, Reusing, replay
from icda.meta.lookahead import difference_step, difference_tangent, exact_tangent
from icda.models import create_model
from icda.models.base import FeatureClassifier

CLASSES = 4


class Branches(nn.Module):
    """In-place sums and ReLUs, as torchvision's networks have them."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1, groups=2)
        self.norm, self.act = nn.BatchNorm2d(6), nn.ReLU(inplace=True)

    def forward(self, images):
        maps = self.act(self.first(images))
        out = self.norm(self.second(maps))
        out += maps
        return self.act(out).mean(dim=(2, 3))


def _encoders():
    frozen = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5), nn.ReLU(), nn.Flatten(), nn.Linear(180, 7))
    for parameter in list(frozen.parameters())[:1]:  # the convolution's weight, not its bias
        parameter.requires_grad_(False)
    running = nn.Sequential(nn.Conv2d(3, 5, 3), nn.BatchNorm2d(5).eval(), nn.ReLU(), nn.Flatten(), nn.Linear(180, 7))
    bare = nn.Sequential(nn.Conv2d(3, 5, 3, bias=False), nn.BatchNorm2d(5, affine=False), nn.ReLU(), nn.Flatten())
    rows = nn.Sequential(nn.Flatten(2), nn.Conv1d(3, 5, 3, stride=2, dilation=2), nn.ReLU(), nn.Flatten())
    dropout = nn.Sequential(nn.Flatten(), nn.Linear(192, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Dropout(0.4))
    return {
        "resnet": create_model("resnet8", CLASSES, (3, 8, 8)).encoder,
        "in place": Branches(),
        "partly frozen": frozen,
        "running statistics": running,
        "norm without weights": bare,
        "one-dimensional": rows,
        "dropout": dropout,
        "gelu, layer norm": nn.Sequential(nn.Flatten(), nn.Linear(192, 12), nn.GELU(), nn.LayerNorm(12)),
    }


KINDS = list(_encoders())


def problem(kind, dtype=torch.float64):
    """A network, inputs, and a direction of its trained parameters."""
    torch.manual_seed(3)
    encoder = _encoders()[kind].to(dtype)
    inputs = torch.randn(6, 3, 8, 8, dtype=dtype)
    model = FeatureClassifier(encoder, nn.Linear(encoder(inputs).shape[1], CLASSES, dtype=dtype))
    named = {name: value for name, value in model.named_parameters() if value.requires_grad}
    return model, inputs, {name: torch.randn_like(value) for name, value in named.items()}


@pytest.mark.parametrize("kind", KINDS)
def test_reused_outputs_give_the_tangent_of_forward_mode(kind):
    model, inputs, direction = problem(kind)
    before = {name: value.clone() for name, value in model.named_buffers()}
    recorded = Forward.of(model, inputs, record=True)
    now = {name: value.clone() for name, value in model.named_buffers()}
    plain = Forward(inputs, recorded.output, recorded.random_state)
    wanted, found = exact_tangent(model, plain, direction), exact_tangent(model, recorded, direction)
    assert wanted.abs().max() > 0.1
    torch.testing.assert_close(found, wanted, rtol=1e-11, atol=1e-13)
    for name, value in model.named_buffers():
        assert torch.equal(value, now[name]), "the tangent pass moved BatchNorm's statistics"
    assert not before or kind == "running statistics" or any(not torch.equal(before[n], now[n]) for n in now)


def operations(function, *given):
    with FlopCounterMode(display=False) as counter:
        function(*given)
    return counter.get_total_flops()


def test_layers_take_two_products_in_place_of_three():
    model, inputs, direction = problem("resnet")
    recorded = Forward.of(model, inputs, record=True)
    plain = Forward(inputs, recorded.output, recorded.random_state)
    one = operations(model, inputs)
    first = operations(model.encoder.stem, inputs)  # its input has no tangent
    assert operations(exact_tangent, model, plain, direction) == 3 * one
    assert operations(exact_tangent, model, recorded, direction) == 2 * one - first


def test_a_recording_keeps_nothing_that_the_graph_does_not_keep():
    model, inputs, _ = problem("resnet")
    recorded = Forward.of(model, inputs, record=True)
    alive = {call.function: call.value() is not None for call in recorded.recording.calls[:3]}
    assert alive == {torch.conv2d: True, F.batch_norm: False, F.relu: True}


def test_the_graph_serves_the_real_step_after_its_outputs_were_reused():
    model, inputs, direction = problem("in place")
    recorded = Forward.of(model, inputs, record=True)
    exact_tangent(model, recorded, direction)
    recorded.output.logits.square().sum().backward()
    found = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    model(inputs).logits.square().sum().backward()
    for gradient, parameter in zip(found, model.parameters(), strict=True):
        assert torch.equal(gradient, parameter.grad)


def test_another_sequence_of_layers_is_not_taken_for_the_same():
    model, inputs, direction = problem("resnet")
    other, _, _ = problem("dropout")
    strange = Forward.of(other, inputs, record=True)
    mixed = Forward(inputs, model(inputs), [torch.get_rng_state()], strange.recording)
    plain = Forward(inputs, mixed.output, mixed.random_state)
    torch.testing.assert_close(exact_tangent(model, mixed, direction), exact_tangent(model, plain, direction))
    torch.testing.assert_close(
        difference_tangent(model, mixed, direction, 1e-6), difference_tangent(model, plain, direction, 1e-6)
    )


@pytest.mark.parametrize("kind", ["resnet", "dropout", "gelu, layer norm", "in place"])
def test_the_error_of_a_difference_falls_linearly_with_its_step(kind):
    model, inputs, direction = problem(kind)
    recorded = Forward.of(model, inputs, record=True)
    exact = exact_tangent(model, recorded, direction)
    errors = [float((difference_tangent(model, recorded, direction, s) - exact).norm()) for s in (1e-3, 1e-4, 1e-5)]
    assert errors[0] / errors[1] == pytest.approx(10, rel=0.1)
    assert errors[1] / errors[2] == pytest.approx(10, rel=0.1)


def test_without_a_recording_units_that_open_or_close_make_the_error_larger():
    model, inputs, direction = problem("resnet")
    recorded = Forward.of(model, inputs, record=True)
    plain = Forward(inputs, recorded.output, recorded.random_state)
    exact = exact_tangent(model, recorded, direction)
    held, free = (float((difference_tangent(model, f, direction, 1e-4) - exact).norm()) for f in (recorded, plain))
    assert held < 0.3 * free


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-2), (torch.float64, 1e-6)])
@pytest.mark.parametrize("kind", ["resnet", "dropout", "gelu, layer norm"])
@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_chosen_step_is_accurate_whatever_the_length_of_the_direction(kind, dtype, limit, scale):
    model, inputs, direction = problem(kind, dtype)
    direction = {name: scale * value for name, value in direction.items()}
    recorded = Forward.of(model, inputs, record=True)
    exact = exact_tangent(model, recorded, direction)
    error = (difference_tangent(model, recorded, direction) - exact).norm() / exact.norm()
    assert float(error) < limit


def test_a_step_has_a_length_where_weights_or_direction_are_zero():
    zero, one = torch.zeros(2, 2), torch.ones(2, 2)
    root = torch.finfo(torch.float32).eps ** 0.5
    assert difference_step({"w": one}, {"w": zero}) == 0
    assert difference_step({"w": zero}, {"w": one}) == pytest.approx(root / 2)  # by the direction's own length
    assert difference_step({"w": zero, "v": one}, {"w": one, "v": 4 * one}) == pytest.approx(root / 4)
    model, inputs, direction = problem("resnet")
    still = {name: torch.zeros_like(value) for name, value in direction.items()}
    assert torch.equal(difference_tangent(model, Forward.of(model, inputs), still), torch.zeros(6, CLASSES).double())


def test_half_precision_is_refused_by_a_difference_and_taken_by_the_exact_form():
    model, inputs, direction = problem("dropout", torch.float32)
    weights = torch.ones(6, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        forward = Forward.of(model, inputs, record=True)
        with pytest.raises(ValueError, match='take lookahead="full"'):
            difference_tangent(model, forward, direction)
        assert torch.isfinite(exact_tangent(model, forward, direction)).all()

        def inner(logits, weight):
            return (weights * F.cross_entropy(logits, torch.arange(6) % CLASSES, reduction="none")).mean()

        found = look_ahead(model, forward, inner, [weights], inputs, torch.arange(6) % CLASSES, 0.1)
    assert torch.isfinite(found.gradients[0]).all()


def test_modes_leave_no_trace():
    model, inputs, _ = problem("dropout")
    state = torch.get_rng_state()
    with replay([state]), FixedSigns([]), Reusing([]):
        first = model(inputs).logits
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(model(inputs).logits, first)
