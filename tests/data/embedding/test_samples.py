import pytest

from icda.data.embedding.samples import Columns
from icda.data.own.reading import read_samples


def test_class_folders_become_labels_and_no_split_is_made_up(tmp_path, write_image):
    for name in ("cat/1.png", "cat/0.png", "dog/deep/2.PNG"):
        write_image(tmp_path / name)
    samples = read_samples(tmp_path)
    assert (samples.kind, samples.ids, samples.labels.tolist()) == (
        "image",
        ["cat/0.png", "cat/1.png", "dog/deep/2.PNG"],
        ["cat", "cat", "dog"],
    )
    assert samples.splits is None
    assert samples.groups is None
    assert samples.inputs[0] == tmp_path / "cat" / "0.png"


def test_a_table_of_texts_keeps_empty_ones_and_counts_rows_from_0(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("text,label,group,split\nhello,a,g1,train\n,b,g2,test\n")
    samples = read_samples(table)
    assert (samples.kind, samples.inputs, list(samples.ids)) == ("text", ["hello", ""], [0, 1])
    assert (samples.labels.tolist(), samples.groups.tolist()) == (["a", "b"], ["g1", "g2"])
    assert samples.split_names == ["train", "test"]


def test_paths_of_a_table_are_relative_to_it_and_attributes_make_groups(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("path,y,attribute\nx/0.png,0,land\nx/1.png,1,water\n")
    samples = read_samples(table)
    assert samples.inputs == [tmp_path / "x/0.png", tmp_path / "x/1.png"]
    assert (samples.ids, samples.crossed()[0]) == (["x/0.png", "x/1.png"], ["0, land", "1, water"])


def test_columns_can_be_named(tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("path,review,stars,who,part\n0.png,good,5,a,dev\n")
    samples = read_samples(table, Columns(text="review", labels="stars", groups="who", splits="part"))
    assert (samples.inputs, samples.labels, samples.groups, samples.splits) == (["good"], "5", "a", "validation")


def test_without_labels_all_images_and_all_rows_are_taken(tmp_path, write_image):
    write_image(tmp_path / "new" / "0.png")
    write_image(tmp_path / "new" / "deep" / "1.png")
    samples = read_samples(tmp_path / "new", unlabelled=True)
    assert (samples.ids, samples.labels) == (["0.png", "deep/1.png"], None)
    (tmp_path / "t.csv").write_text("text,group\nhello,g\n")
    samples = read_samples(tmp_path / "t.csv", unlabelled=True)
    assert (samples.labels, samples.groups.tolist()) == (None, ["g"])


def test_wrong_places_are_named(tmp_path, write_image):
    with pytest.raises(FileNotFoundError, match=r"nowhere is not there. Expected: a CSV table, or a folder"):
        read_samples(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="is one image"):
        read_samples(write_image(tmp_path / "flat" / "0.png"))
    with pytest.raises(ValueError, match=r"no class folders with images.*--unlabelled"):
        read_samples(tmp_path / "flat")
    (tmp_path / "flat" / "empty").mkdir()
    with pytest.raises(ValueError, match="empty holds no image"):
        read_samples(tmp_path / "flat")
    with pytest.raises(ValueError, match="holds no image"):
        read_samples(tmp_path / "flat" / "empty", unlabelled=True)
    with pytest.raises(ValueError, match="is a folder: columns"):
        read_samples(tmp_path / "flat", Columns(labels="y"))
    (tmp_path / "t.csv").write_text("text,labell\nhello,a\n")
    with pytest.raises(ValueError, match=r"has no label column.*Did you mean 'labell'"):
        read_samples(tmp_path / "t.csv")


def test_the_state_of_an_image_changes_with_its_file(tmp_path, write_image):
    path = write_image(tmp_path / "cat" / "0.png")
    samples = read_samples(tmp_path)
    before = samples.state(0)
    assert samples.state(0) == before
    path.write_bytes(b"other")
    assert samples.state(0) != before
    path.unlink()
    assert samples.state(0) == "cat/0.png missing"
