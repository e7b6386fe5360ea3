"""A LightningModule of one's own with our loss and callback."""

import copy
import math

import lightning.pytorch as pl
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from icda import ICDALoss
from icda.integrations import RobustCallback, TappedLoss

TARGETS = torch.arange(24) % 3


def make_network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 3))


class Module(pl.LightningModule):
    """What a user writes: the network, the loss, and a call with the targets."""

    def __init__(self, validates=True):
        super().__init__()
        self.network = make_network()
        self.criterion = TappedLoss(self.network, ICDALoss(3, 8, torch.tensor([10, 5, 5])))
        self.validates = validates
        self.progress = []

    def training_step(self, batch, index):
        self.network(batch[0])
        self.progress.append(self.criterion.progress)
        return self.criterion(batch[1])

    def validation_step(self, batch, index):
        self.network(batch[0])
        if self.validates:
            self.log("val_loss", self.criterion(batch[1]))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader():
    inputs = torch.randn(24, 12, generator=torch.Generator().manual_seed(1)) + TARGETS[:, None]
    return DataLoader(TensorDataset(inputs, TARGETS), batch_size=8)


def make_trainer(folder, **settings):
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    defaults = {"callbacks": [RobustCallback()], "max_epochs": 2, "enable_checkpointing": False}
    return pl.Trainer(default_root_dir=folder, **{**quiet, **defaults, **settings})


def same_state(one, other):
    torch.testing.assert_close(one.state_dict(), other.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize("prior", ["none", "attributes", "log_prior"])
def test_the_loss_and_its_prior_are_those_of_the_call_by_hand(prior):
    network, twin, inputs = make_network(), make_network(), torch.randn(24, 12)
    known = {
        "none": {},
        "attributes": {"attributes": torch.arange(24) % 2},
        "log_prior": {"log_prior": torch.randn(24, 3)},
    }
    loss = ICDALoss(3, 8, prior=torch.tensor([[9, 2, 3], [1, 1, 5]]) if prior == "attributes" else None)
    criterion = TappedLoss(network, copy.deepcopy(loss))
    criterion.progress = 0.3
    network(inputs)
    wanted = loss(twin[:3](inputs), TARGETS, twin[3], 0.3, **known[prior])
    torch.testing.assert_close(criterion(TARGETS, **known[prior]), wanted)
    logits = network(inputs)
    torch.testing.assert_close(criterion.eval()(TARGETS, **known[prior]), nn.functional.cross_entropy(logits, TARGETS))


def test_training_is_that_of_a_loop_by_hand(tmp_path):
    module = Module()
    make_trainer(tmp_path, accumulate_grad_batches=3, max_epochs=4).fit(module, loader(), loader())
    assert module.progress == pytest.approx([step / 4 for step in range(4) for _ in range(3)])

    network, loss = make_network(), ICDALoss(3, 8, torch.tensor([10, 5, 5]))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    for step in range(4):
        for inputs, targets in loader():
            (loss(network[:3](inputs), targets, network[3], step / 4) / 3).backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(module.network.state_dict(), network.state_dict())
    torch.testing.assert_close(module.criterion.loss.state_dict(), loss.state_dict())


def test_the_worst_class_of_the_validation_set_is_logged(tmp_path):
    module, trainer = Module(), make_trainer(tmp_path)
    trainer.fit(module, loader(), loader())
    inputs, targets = (torch.cat(parts) for parts in zip(*loader(), strict=True))
    with torch.no_grad():
        correct = module.network(inputs).argmax(1) == targets
    worst = min(correct[targets == c].float().mean().item() for c in range(3))
    assert trainer.callback_metrics["val_worst_class_accuracy"].item() == pytest.approx(worst)
    assert not module.criterion._forward_hooks


def test_it_can_be_monitored_and_resuming_is_exact(tmp_path):
    def keeper():
        return pl.callbacks.ModelCheckpoint(
            tmp_path, "{epoch}", monitor="val_worst_class_accuracy", mode="max", save_top_k=-1
        )

    whole = Module()
    settings = {"max_epochs": 4, "enable_checkpointing": True}
    make_trainer(tmp_path, callbacks=[RobustCallback(), keeper()], **settings).fit(whole, loader(), loader())
    again = Module()
    trainer = make_trainer(tmp_path, callbacks=[RobustCallback(), keeper()], **settings)
    trainer.fit(again, loader(), loader(), ckpt_path=tmp_path / "epoch=1.ckpt")
    same_state(again, whole)
    assert again.criterion.loss.statistics.count.sum() == 4 * 24
    loaded = Module.load_from_checkpoint(tmp_path / "epoch=3.ckpt")
    same_state(loaded, whole)


@pytest.mark.parametrize("fault", ["no loss", "no end", "no call", "plain loss"])
def test_wrong_use_says_what_to_do(tmp_path, fault):
    module, settings = Module(validates=fault != "no call"), {}
    if fault == "plain loss":
        with pytest.raises(TypeError, match="got CrossEntropyLoss"):
            TappedLoss(module.network, nn.CrossEntropyLoss())
        return
    if fault == "no loss":
        module.criterion = nn.Identity()
    if fault == "no end":
        settings = {"max_epochs": -1}
    message = {"no loss": "found 0", "no end": "max_epochs or max_steps", "no call": "saw no prediction"}[fault]
    with pytest.raises((ValueError, RuntimeError), match=message):
        make_trainer(tmp_path, **settings).fit(module, loader(), loader())


def test_without_a_metric_validation_need_not_call_the_loss(tmp_path):
    module, trainer = Module(validates=False), make_trainer(tmp_path, callbacks=[RobustCallback(metric=None)])
    trainer.fit(module, loader(), loader())
    assert module.progress[-1] == pytest.approx(5 / 6)
    assert math.isclose(trainer.estimated_stepping_batches, 6)
