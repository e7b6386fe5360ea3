"""Which model reads texts, with which tokeniser; Hugging Face's are built here, small, from a vocabulary of words."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import torch

from icda.data import create_task, csv_task
from icda.data.sources import FeatureArray, TextArray
from icda.data.task import Split, Task
from icda.data.tokens import HASHED_WORDS, Tokeniser, hash_tokenise
from icda.models.huggingface import load_huggingface
from icda.models.tokenisers import TOKENISERS, load_tokeniser, read_by, tokeniser_of, with_tokeniser
from icda.registry import UnknownNameError
from support import WORDS, text_tokeniser, write_text_model

transformers = pytest.importorskip("transformers")

PADDING, CLS, SEP = WORDS.index("[PAD]"), WORDS.index("[CLS]"), WORDS.index("[SEP]")


def write_table(path, rows=40):
    lines = [f"{'a ' * (row % 4)}{'good' if row % 2 else 'bad'} film,{row % 2}" for row in range(rows)]
    path.write_text("text,label\n" + "\n".join(lines) + "\n")
    return path


def test_a_task_of_texts_gets_the_tokens_the_model_was_saved_with(tmp_path):
    task = csv_task(write_table(tmp_path / "films.csv"))
    read = read_by(task, f"hf:{write_text_model(tmp_path / 'model')}")
    rows = read.train.rows.tolist()
    source = read.train.source
    longest, shortest = (next(p for p, row in enumerate(rows) if row % 4 == rest) for rest in (3, 0))
    inputs = read.train.batch(torch.tensor([longest, shortest])).inputs
    a, good, bad, film = (WORDS.index(word) for word in ("a", "good", "bad", "film"))
    assert inputs["input_ids"].tolist() == [
        [CLS, a, a, a, good, film, SEP],
        [CLS, bad, film, SEP, PADDING, PADDING, PADDING],
    ]
    assert inputs["attention_mask"].tolist() == [[1] * 7, [1] * 4 + [0] * 3]
    assert read.input_shape == (12,)  # as many positions as the model has, fewer than the table's 128
    assert read.test.source is source


def test_a_text_is_cut_before_its_closing_token(tmp_path):
    tokeniser = load_tokeniser(write_text_model(tmp_path), len(WORDS), 12)
    (ids,) = tokeniser.encode(["good " * 50], 5)
    assert ids == [CLS, *[WORDS.index("good")] * 3, SEP]
    assert (tokeniser.padding, tokeniser.max_length) == (PADDING, 12)


def test_two_threads_may_ask_for_different_lengths(tmp_path):
    """A loader's thread and the trainer's share a tokeniser, and its length is a setting inside it."""
    tokeniser = load_tokeniser(write_text_model(tmp_path), len(WORDS))
    with ThreadPoolExecutor(4) as pool:
        lengths = [3 + number % 5 for number in range(200)]
        found = list(pool.map(lambda length: tokeniser.encode(["good " * 20] * 8, length), lengths))
    assert [{len(ids) for ids in lists} for lists in found] == [{length} for length in lengths]


def test_a_bag_of_words_reads_hashes_and_models_that_read_no_texts_have_no_tokeniser():
    assert tokeniser_of("bag-of-words") is HASHED_WORDS
    assert "bag_of_words" in TOKENISERS
    assert tokeniser_of("resnet20") is None
    assert tokeniser_of("timm:resnet18") is None
    with pytest.raises(UnknownNameError, match="did you mean 'minilm'"):
        tokeniser_of("minilmm")


def test_a_text_model_on_images_and_the_reverse_are_refused(tmp_path):
    digits, films = create_task("digits_lt"), csv_task(write_table(tmp_path / "films.csv"))
    assert read_by(digits, "small_cnn") is digits
    with pytest.raises(ValueError, match=r"'minilm' reads texts, but the samples of task 'digits_lt' .* 'small_cnn'"):
        read_by(digits, "minilm")
    with pytest.raises(ValueError, match=r"'resnet20' does not read texts.*choose one of bag_of_words, minilm"):
        read_by(films, "resnet20")
    with pytest.raises(ValueError, match="max_length is 5, but the samples of task 'digits_lt' are no texts"):
        read_by(digits, "small_cnn", max_length=5)
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    transformers.ResNetForImageClassification(config).save_pretrained(tmp_path / "resnet")
    assert tokeniser_of(f"hf:{tmp_path / 'resnet'}") is None


def test_a_tokeniser_that_is_missing_or_of_another_model_is_refused(tmp_path):
    with pytest.raises(OSError, match=r"none has no tokeniser: save the one"):
        tokeniser_of(f"hf:{write_text_model(tmp_path / 'none', tokeniser=False)}")
    with pytest.raises(OSError, match=r"the tokeniser of .*nowhere cannot be loaded"):
        load_tokeniser(str(tmp_path / "nowhere"), 5)
    with pytest.raises(ValueError, match=r"knows 9 tokens, its model only 5: they are no pair"):
        load_tokeniser(write_text_model(tmp_path / "model"), 5)


def test_a_tokeniser_without_padding_pads_with_the_end_of_a_text(tmp_path):
    tokeniser = text_tokeniser()
    tokeniser.pad_token, tokeniser.eos_token = None, "[SEP]"
    tokeniser.save_pretrained(tmp_path)
    assert load_tokeniser(str(tmp_path), len(WORDS)).padding == SEP


@pytest.mark.parametrize("ends", [1, [3, 2]], ids=["one end", "several ends"])
def test_a_decoder_without_padding_looks_for_what_its_tokeniser_pads_with(ends, tmp_path):
    """Its feature is that of the last token that is no padding, so a text must not change with its batch."""
    sizes = {"n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 12, "vocab_size": len(WORDS)}
    config = transformers.GPT2Config(**sizes, eos_token_id=ends, bos_token_id=0)
    torch.manual_seed(0)
    transformers.GPT2ForSequenceClassification(config).save_pretrained(tmp_path)
    without = load_huggingface(str(tmp_path), 2).encoder.network.config
    assert without.pad_token_id == (1 if ends == 1 else 3), "the first end of a text, without a tokeniser"
    text_tokeniser().save_pretrained(tmp_path)
    network = load_huggingface(str(tmp_path), 2).eval()
    source = csv_task(write_table(tmp_path / "films.csv"))
    read = read_by(source, f"hf:{tmp_path}").train
    lengths = [len(read.batch(torch.tensor([row])).inputs["input_ids"][0]) for row in range(8)]
    short, long = lengths.index(min(lengths)), lengths.index(max(lengths))
    alone, together = (read.batch(torch.tensor(rows)).inputs for rows in ([short], [short, long]))
    assert together["input_ids"][0, -1] == PADDING
    torch.testing.assert_close(network(alone).features[0], network(together).features[0], rtol=0, atol=1e-5)


TEXTS = ["not a good film", "good", "a bad film", "bad"]


def closed(texts, max_length):
    """One id a word, and 9 at the end of each text whatever its length."""
    return [[*(len(word) for word in text.split()[: max_length - 1]), 9] for text in texts]


def make_task():
    source = TextArray(TEXTS, lambda texts: [[1]] * len(texts), 8)
    train = Split(source, torch.tensor([0, 2]), torch.tensor([1, 0]), groups=torch.tensor([0, 1]))
    other = TextArray(["odd one"], lambda texts: [[1]] * len(texts), 6)
    validation = Split(other, torch.tensor([0]), torch.tensor([1]), groups=torch.tensor([1]))
    test = Split(source, torch.tensor([1, 3]), torch.tensor([1, 0]), groups=torch.tensor([0, 0]))
    return Task("films", 2, train, validation, test, group_names=("a", "b"), input_kind="text", input_shape=(8,))


def test_every_split_is_cut_by_the_new_tokeniser_and_nothing_else_changes():
    task = make_task()
    changed = with_tokeniser(task, Tokeniser(closed, padding=7))
    inputs = changed.train.batch(torch.arange(2)).inputs
    assert inputs["input_ids"].tolist() == [[3, 1, 4, 4, 9], [1, 3, 4, 9, 7]]
    assert inputs["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]]
    assert changed.validation.batch(torch.tensor([0])).inputs["input_ids"].tolist() == [[3, 3, 9]]
    for name, split in changed.splits().items():
        before = task.splits()[name]
        for values in ("rows", "targets", "groups"):
            assert torch.equal(getattr(split, values), getattr(before, values))
    assert (changed.name, changed.group_names, changed.input_shape) == ("films", ("a", "b"), (8,))
    assert changed.train.source is changed.test.source is not changed.validation.source
    assert task.train.batch(torch.arange(2)).inputs["input_ids"].tolist() == [[1], [1]]


def test_the_length_is_the_smallest_of_what_is_asked_for_and_what_the_model_can_take():
    task = make_task()
    assert with_tokeniser(task, Tokeniser(closed), max_length=3).input_shape == (3,)
    assert with_tokeniser(task, Tokeniser(closed), max_length=50).input_shape == (50,)
    short = with_tokeniser(task, Tokeniser(closed, max_length=2), max_length=50)
    assert short.input_shape == (2,)
    # The tokeniser is told the length: its closing id is not what is cut off.
    assert short.train.batch(torch.arange(2)).inputs["input_ids"].tolist() == [[3, 9], [1, 9]]


def test_the_hash_of_the_data_tells_tokenisers_apart():
    task = make_task()
    hashes = {
        with_tokeniser(task, tokeniser).data_hash
        for tokeniser in (
            HASHED_WORDS,
            Tokeniser(closed),
            Tokeniser(closed, padding=1),
            Tokeniser(closed, max_length=3),
        )
    }
    assert len(hashes) == 4
    # Hashed words exchanged for themselves leave the hash.
    split = Split(TextArray(TEXTS, hash_tokenise, 5), torch.arange(4), torch.tensor([1, 1, 0, 0]))
    task = Task("films", 2, split, None, split, input_kind="text", input_shape=(5,))
    assert with_tokeniser(task, HASHED_WORDS).data_hash == task.data_hash


def test_texts_that_are_numbers_already_are_refused():
    task = make_task()
    features = replace(task.train, source=FeatureArray(torch.zeros(4, 2)))
    with pytest.raises(TypeError, match="keeps its texts in a FeatureArray, expected a TextArray"):
        with_tokeniser(replace(task, train=features), HASHED_WORDS)
