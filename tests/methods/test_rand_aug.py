import pytest
import torch

from icda.data import Split, Task, create_task
from icda.data.augmentation import RandAugment
from icda.data.sources import FeatureArray, ImageArray
from icda.methods import Method, Setup, create_method
from icda.methods.base import Stage
from icda.methods.rand_aug import RandAug
from icda.models import create_model
from icda.training import TrainConfig, Trainer, train
from icda.training.checkpoint import load_checkpoint
from icda.training.run import make_accelerator

SETUP = Setup(3, 5, torch.tensor([6, 3, 1]), epochs=10, num_samples=10, input_shape=(3, 8, 8))


def configure(folder, **settings):
    settings = {"task": "digits", "model": "mlp", "epochs": 1, "batch_size": 100, "out": str(folder)} | settings
    return TrainConfig(**settings)


def blackened(images, generator):
    return torch.zeros_like(images)


class Watching(Method):
    """Blackens its images and notes what it is given from where."""

    augment_images = staticmethod(blackened)

    def __init__(self):
        super().__init__()
        self.given = {"step": [], "draw": [], "metadata": [], "pass": [], "predict": []}

    def stages(self, epochs):
        return [Stage(epochs)]

    def loss(self, output, batch, context):
        self.given["step"].append(batch.inputs)
        self.given["draw"].append(context.draw("class_balanced").inputs)
        self.given["metadata"].append(context.next_metadata().inputs)
        return output.logits.sum() * 0

    def on_epoch_end(self, context):
        self.given["pass"] += [batch.inputs for batch in context.training_batches()]

    def predict(self, models, inputs):
        self.given["predict"].append(inputs)
        return super().predict(models, inputs)


def test_training_batches_are_transformed_and_passes_and_evaluations_are_not(tmp_path):
    config, task = configure(tmp_path, method="ce"), create_task("digits")
    network = create_model("mlp", task.num_classes, task.input_shape)
    before, method = task.data_hash, Watching()
    Trainer(config, task, [network], method, tmp_path, make_accelerator("no")).run()
    for where, batches in method.given.items():
        assert batches, where
        is_black = [bool((batch == batch.flatten()[0]).all()) for batch in batches]
        assert is_black == [where in ("step", "draw", "metadata")] * len(batches), where
    assert task.data_hash == before
    assert load_checkpoint(tmp_path / "checkpoint.pt")["data_hash"] == before


def test_the_method_changes_images_by_its_options():
    method = create_method("rand_aug", SETUP, {"num_ops": 3, "magnitude": 20})
    images = torch.randint(0, 256, (5, 8, 8, 3), dtype=torch.uint8)
    found = method.augment_images(images, torch.Generator().manual_seed(1))
    assert torch.equal(found, RandAugment(3, 20)(images, torch.Generator().manual_seed(1)))
    assert repr(RandAug(SETUP).augment_images) == "RandAugment(num_ops=2, magnitude=9)", "the defaults"


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_and_coloured_images_reach_the_network_with_their_channels(channels, tmp_path):
    images = torch.randint(0, 256, (40, 8, 8, channels), dtype=torch.uint8)
    source = ImageArray(images, (0.5,) * channels, (0.25,) * channels, crop_padding=1, flip=True)
    split = Split(source, torch.arange(40), torch.arange(40) % 2)
    task = Task("pictures", 2, split, None, split, input_shape=(channels, 8, 8))
    network = create_model("mlp", 2, task.input_shape)
    config = configure(tmp_path, method="rand_aug", batch_size=20)
    method = create_method("rand_aug", Setup.of(task, network, 1))
    trainer = Trainer(config, task, [network], method, tmp_path, make_accelerator("no"))
    trainer.run()
    batch = next(iter(trainer.batches.stage_loader(trainer.stages[0]).epoch(0)))
    assert batch.inputs.shape == (20, channels, 8, 8)


@pytest.mark.parametrize("shape", [(), (7,), (2, 8, 8)], ids=["text", "features", "two channels"])
def test_inputs_that_are_no_images_are_refused(shape):
    setup = Setup(3, 5, torch.tensor([6, 3, 1]), epochs=10, num_samples=10, input_shape=shape)
    with pytest.raises(ValueError, match=r"rand_aug changes images: .* 1 or 3 channels, got"):
        create_method("rand_aug", setup)


@pytest.mark.parametrize("method", ["acgan", "cgan", "infogan", "rand_aug", "wgan"])
def test_texts_are_refused_before_any_training(method, tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("text,label\n" + "".join(f"word{i},{i % 2}\n" for i in range(40)))
    config = configure(tmp_path / "run", method=method, data=str(table), model=None)
    with pytest.raises(ValueError, match=f"{method} .* images"):
        train(config)
    assert not (tmp_path / "run").exists()


def test_a_source_that_cannot_be_transformed_is_refused_before_any_training(tmp_path):
    split = Split(FeatureArray(torch.randn(20, 6)), torch.arange(20), torch.arange(20) % 2)
    task = Task("table", 2, split, None, split, input_kind="features", input_shape=(6,))
    config, folder = configure(tmp_path / "run", method="ce"), tmp_path / "run"
    with pytest.raises(ValueError, match="FeatureArray holds no images, and the method transforms images"):
        Trainer(config, task, [create_model("linear", 2, (6,))], Watching(), folder, make_accelerator("no"))
    assert not folder.exists()
