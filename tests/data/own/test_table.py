import pytest
import torch

from icda.data import csv_task
from icda.data.embedding.samples import Columns
from icda.data.own.table import read_table
from icda.data.tokens import hash_tokens


def _csv(folder, *lines, name="table.csv"):
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _texts(folder, header="text,label", row="{kind} film {k},{kind}", each=10):
    lines = [
        row.format(kind=kind, k=k, place=("land", "water")[k % 2]) for kind in ("bad", "good") for k in range(each)
    ]
    return _csv(folder, header, *lines)


class TestImages:
    def test_paths_are_relative_to_the_table(self, tmp_path, write_image):
        for k in range(6):
            write_image(tmp_path / "pictures" / f"{k}.png", colour=(250, 0, 0) if k % 2 else (0, 250, 0))
        rows = [f"pictures/{k}.png,{('green', 'red')[k % 2]},{('train', 'val', 'test')[k // 2]}" for k in range(6)]
        task = csv_task(_csv(tmp_path, "filename,Class,split", *rows), image_size=8)
        assert [split.rows.tolist() for split in task.splits().values()] == [[0, 1], [2, 3], [4, 5]]
        batch = task.train.batch(torch.arange(2))
        assert (batch.inputs[:, 0].mean((1, 2)) > 0).long().tolist() == batch.targets.tolist() == [0, 1]
        assert (task.name, task.class_names, task.input_shape) == ("table", ("green", "red"), (3, 8, 8))
        assert (task.input_kind, task.default_model, task.group_names) == ("image", "resnet20", None)

    def test_a_missing_picture_is_named_with_its_line(self, tmp_path, write_image):
        write_image(tmp_path / "a.png")
        table = _csv(tmp_path, "image,label", "a.png,x", "gone.png,y")
        with pytest.raises(FileNotFoundError, match=r"table\.csv, line 3: there is no file .*gone\.png"):
            csv_task(table)


class TestTexts:
    def test_texts_are_hashed_unless_a_tokeniser_is_given(self, tmp_path):
        table = _texts(tmp_path)
        task = csv_task(table)
        batch = task.train.batch(torch.tensor([0]))
        row = int(task.train.rows[0])
        assert batch.inputs["input_ids"][0].tolist() == hash_tokens(f"bad film {row}")
        assert (task.input_kind, task.default_model, task.input_shape) == ("text", "bag_of_words", (128,))
        own = csv_task(table, tokenise=lambda texts: [[len(text)] * 9 for text in texts], max_length=4)
        assert own.train.batch(torch.tensor([0])).inputs["input_ids"].tolist() == [[10] * 4]

    def test_quoted_texts_may_hold_commas_and_line_breaks(self, tmp_path):
        rows = ['"well, not\ngood",bad,train', '"good, ""really""",good,train', "so so,bad,test", "fine,good,test"]
        task = csv_task(_csv(tmp_path, "sentence,y,split", *rows))
        assert len(task.train) == 2
        assert task.train.source.texts[0] == "well, not\ngood"

    @pytest.mark.parametrize("mark", [";", "\t"])
    def test_semicolons_and_tabs_separate_as_well(self, tmp_path, mark):
        table = _texts(tmp_path, header=f"text{mark}label", row="{kind}, film {k}" + mark + "{kind}")
        assert csv_task(table).class_names == ("bad", "good")

    def test_a_mark_of_byte_order_is_no_part_of_the_first_name(self, tmp_path):
        path = _texts(tmp_path)
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
        assert csv_task(path).num_classes == 2

    def test_a_column_that_stands_there_twice_with_the_same_cells_counts_once(self, tmp_path):
        """As in the published COMPAS table."""
        twice = read_table(_csv(tmp_path, "text,score,label,score", "a,1,x,1", "b,2,y,2"))
        assert twice.columns == {"text": ["a", "b"], "score": ["1", "2"], "label": ["x", "y"]}


class TestGroups:
    def test_groups_of_one_class_each_are_taken_as_they_are(self, tmp_path):
        task = csv_task(_texts(tmp_path, "text,label,group", "{kind} {k},{kind},{kind} on {place}"))
        assert task.group_names == ("bad on land", "bad on water", "good on land", "good on water")
        assert task.group_attributes is None

    def test_columns_may_be_named_by_the_caller(self, tmp_path):
        table = _texts(tmp_path, "review,mood,where", "{kind} {k},{kind},{place}")
        task = csv_task(table, Columns(text="review", labels="mood", groups="where"))
        crossed = csv_task(table, Columns(text="review", labels="mood", attributes="where"))
        assert task.group_names == crossed.group_names == ("bad, land", "bad, water", "good, land", "good, water")
        assert task.group_attributes == crossed.group_attributes == (0, 1, 0, 1)
        for split in crossed.splits().values():
            assert torch.equal(split.groups // 2, split.targets)


class TestBadTables:
    @pytest.mark.parametrize(
        ("header", "options", "message"),
        [
            (
                "text,lable",
                {},
                r"no label column by a usual name \(label, .* Did you mean 'lable'\? Name it with --label-column",
            ),
            ("text,Mood", {"labels": "mod"}, "no label column 'mod': did you mean 'Mood'"),
            ("body,label", {}, "no image or text column"),
            ("text,label", {"image": "text", "text": "text"}, "not both"),
            ("text,text", {}, r"two columns are called 'text', and differ in line 2 \(.*Rename or drop one"),
        ],
    )
    def test_a_column_that_is_missing_gets_a_proposal(self, tmp_path, header, options, message):
        with pytest.raises(ValueError, match=message):
            csv_task(_texts(tmp_path, header), Columns(**options))

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            (["file,text,label", "a.png,a,x", "b.png,b,y"], "choose with --image-column or --text-column"),
            (["text,label", "a,x", "b, "], "line 3: column 'label' is empty"),
            (["text,label", "a,x", ",y"], "line 3: column 'text' is empty"),
            (["text,label", "well, yes,x"], "line 2: 3 cells, expected 2"),
            (["text,label"], "rows below it"),
            (["text,label", "a,x", "b,NaN"], "line 3: column 'label' says 'NaN', which stands for a missing value"),
            (["text,label", "a,x", f"b,{'x' * 1001}"], "line 3: column 'label' holds 1001 characters"),
            (["text,label,split", "a,x,train", "b,y,1"], "line 3: split '1' is not understood. Expected: train"),
            (["text,label,split", "a,x,train", "b,y,trian"], "line 3: split 'trian' is not understood"),
            ([",".join(["text", *(f"f{k}" for k in range(50))]), "1" + ",1" * 50], "it has text, f0, .*f8 and 41 more"),
        ],
    )
    def test_what_is_wrong_is_named_with_its_line(self, tmp_path, lines, message):
        with pytest.raises(ValueError, match=message):
            csv_task(_csv(tmp_path, *lines))

    def test_a_table_that_is_not_there_is_named(self, tmp_path):
        with pytest.raises(FileNotFoundError, match=r"no\.csv is not there\. Expected: a CSV table"):
            csv_task(tmp_path / "no.csv")


class TestTablesOfStrangers:
    def test_latin_1_gets_a_clear_word(self, tmp_path):
        path = tmp_path / "table.csv"
        path.write_bytes("text,label\ncafé,a\nthé,b\n".encode("latin-1"))
        with pytest.raises(ValueError, match=r"not in UTF-8 \(byte 0xe9\).*Latin-1.*iconv"):
            csv_task(path)

    def test_paths_of_windows_are_understood(self, tmp_path, write_image):
        for name in ("a.png", "b.png"):
            write_image(tmp_path / "birds" / name)
        task = csv_task(_csv(tmp_path, "path,label", *["birds\\a.png,x", "birds\\b.png,y"] * 10), image_size=4)
        assert task.train.batch(torch.arange(2)).inputs.shape == (2, 3, 4, 4)

    def test_images_outside_the_tables_folder_need_permission(self, tmp_path, write_image):
        write_image(tmp_path / "secret.png")
        (tmp_path / "inside").mkdir()
        path = _csv(tmp_path / "inside", "path,label", *(f"../secret.png,{label}" for label in "xy" * 10))
        with pytest.raises(ValueError, match=r"line 2: \.\./secret\.png lies outside .*--allow-outside"):
            csv_task(path, image_size=4)
        assert len(csv_task(path, image_size=4, allow_outside=True).train) == 14
