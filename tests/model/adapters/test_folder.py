"""Which adapters lie in the model directory, what is said of the broken ones, and what they ask of vLLM."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lmi.model.adapters.folder import base_config, chosen_memory, chosen_rank, found, read_all, refusal

from ...kit.adapters import LLAMA, write_adapter
from ...kit.api.errors import OptionError
from ...kit.api.options import make_settings
from ...kit.api.types import Settings


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    directory = tmp_path / "model"
    directory.mkdir()
    directory.joinpath("config.json").write_text(json.dumps(LLAMA))
    return directory


def with_lora(model_dir: Path, **options: str) -> Settings:
    return make_settings(model_dir, enable_lora="true", **options)


def test_no_folder(model_dir: Path) -> None:
    assert found(with_lora(model_dir)) == {}
    model_dir.joinpath("adapters").write_text("a file")
    assert found(with_lora(model_dir)) == {}


def test_each_entry_is_an_adapter(model_dir: Path) -> None:
    """What is no folder too, as for DJL Serving; hidden ones are leftovers of tools."""
    folder = model_dir / "adapters"
    for name in ("b", "a", ".cache"):
        folder.joinpath(name).mkdir(parents=True)
    folder.joinpath("notes.txt").write_text("")
    assert found(with_lora(model_dir)) == {name: folder / name for name in ("a", "b", "notes.txt")}
    assert all(path.is_absolute() for path in found(with_lora(model_dir)).values())


@pytest.mark.parametrize("inside", [True, False])
def test_the_folder_of_the_weights_counts_too(model_dir: Path, tmp_path: Path, inside: bool) -> None:
    weights = (model_dir if inside else tmp_path) / "weights"
    for folder in (model_dir, weights):
        folder.joinpath("adapters", f"of_{folder.name}").mkdir(parents=True)
    settings = with_lora(model_dir, model_id="weights" if inside else str(weights))
    assert found(settings) == {
        "of_model": model_dir / "adapters" / "of_model",
        "of_weights": weights / "adapters" / "of_weights",
    }


def test_a_name_twice_is_refused(model_dir: Path) -> None:
    for folder in (model_dir, model_dir / "weights"):
        folder.joinpath("adapters", "a").mkdir(parents=True)
    with pytest.raises(OptionError) as caught:
        found(with_lora(model_dir, model_id="weights"))
    where = f"{model_dir / 'adapters' / 'a'} and {model_dir / 'weights' / 'adapters' / 'a'}"
    assert caught.value.message == f"adapters: expected each name once, got a twice: {where}"
    assert caught.value.param == "adapters"


def test_that_of_images_is_there_wherever_it_lies(model_dir: Path, tmp_path: Path) -> None:
    write_adapter(model_dir / "adapters" / "a", LLAMA)
    elsewhere = write_adapter(tmp_path / "for images", LLAMA, use_dora=True)
    settings = with_lora(model_dir, default_mm_loras=json.dumps({"image": str(elsewhere)}))
    paths = found(settings)
    assert paths == {"a": model_dir / "adapters" / "a", "image": elsewhere}
    _, broken = read_all(paths, base=LLAMA, max_rank=16)
    assert refusal(broken, paths, 16).message.startswith(f"{elsewhere}: ")


def test_its_name_is_no_other_ones(model_dir: Path, tmp_path: Path) -> None:
    of_that_name = write_adapter(model_dir / "adapters" / "image", LLAMA)
    assert found(with_lora(model_dir, default_mm_loras='{"image": "adapters/image"}')) == {"image": of_that_name}
    elsewhere = json.dumps({"image": str(tmp_path)})
    with pytest.raises(OptionError, match=r"^adapters/image: expected another name: it is the name of that for images"):
        found(with_lora(model_dir, default_mm_loras=elsewhere))


def test_the_same_folder_by_another_way_is_no_second_one(model_dir: Path) -> None:
    model_dir.joinpath("adapters", "a").mkdir(parents=True)
    model_dir.joinpath("weights").symlink_to(model_dir)
    assert list(found(with_lora(model_dir, model_id="weights"))) == ["a"]


def test_folders_elsewhere_that_an_option_names(model_dir: Path, tmp_path: Path) -> None:
    model_dir.joinpath("adapters", "a").mkdir(parents=True)
    settings = with_lora(model_dir, lora_modules=f"b={tmp_path}/elsewhere c=inside/c")
    assert found(settings) == {
        "a": model_dir / "adapters" / "a",
        "b": tmp_path / "elsewhere",
        "c": model_dir / "inside" / "c",
    }
    with pytest.raises(OptionError) as caught:
        found(with_lora(model_dir, lora_modules="a=/other"))
    assert caught.value.message == f"option.lora_modules: a: {model_dir / 'adapters' / 'a'} has that name already"


def test_a_broken_one_elsewhere_is_named_by_its_option(model_dir: Path) -> None:
    paths = found(with_lora(model_dir, lora_modules="b=/no/such"))
    error = refusal(read_all(paths, base=LLAMA, max_rank=None)[1], paths, None)
    assert error.message == "option.lora_modules: b: /no/such does not exist"


def test_a_model_on_the_hub_has_no_folder_here(
    model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if something of its name is where the process runs."""
    tmp_path.joinpath("owner", "name", "adapters", "a").mkdir(parents=True)
    tmp_path.joinpath("owner", "name", "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    settings = with_lora(model_dir, model_id="owner/name")
    assert found(settings) == {}
    assert base_config(settings) is None


def test_the_configuration_of_the_base(model_dir: Path) -> None:
    settings = with_lora(model_dir)
    assert base_config(settings) == LLAMA
    for text in ("{", "[]", "[" * 200_000):
        model_dir.joinpath("config.json").write_text(text)
        assert base_config(settings) is None
    model_dir.joinpath("config.json").unlink()
    assert base_config(settings) is None


def test_good_and_broken_ones(model_dir: Path) -> None:
    folder = model_dir / "adapters"
    write_adapter(folder / "good", LLAMA)
    write_adapter(folder / "wide", {**LLAMA, "hidden_size": 64})
    folder.joinpath("notes.txt").write_text("")
    good, broken = read_all(found(with_lora(model_dir)), base=LLAMA, max_rank=None)
    assert {name: files.path for name, files in good.items()} == {"good": folder / "good"}
    assert broken["notes.txt"].message == f"{folder / 'notes.txt'} is not a folder"
    assert "but the base has 32 inputs there" in broken["wide"].message


def refused(model_dir: Path, max_rank: int | None = None) -> str:
    paths = found(with_lora(model_dir))
    error = refusal(read_all(paths, base=LLAMA, max_rank=max_rank)[1], paths, max_rank)
    assert error.param == "adapters"
    return error.message


def test_one_broken_adapter_is_named(model_dir: Path) -> None:
    write_adapter(model_dir / "adapters" / "good", LLAMA, rank=64)
    write_adapter(model_dir / "adapters" / "bad", LLAMA, use_dora=True)
    assert refused(model_dir) == "adapters/bad: adapter_config.json: use_dora: vLLM does not have DoRA"


def test_all_broken_adapters_are_named(model_dir: Path) -> None:
    write_adapter(model_dir / "adapters" / "a", LLAMA, use_dora=True)
    write_adapter(model_dir / "adapters" / "b", LLAMA, bias="all")
    message = refused(model_dir, 64)
    assert message.startswith("2 adapters cannot be served: (1) adapters/a: adapter_config.json: use_dora: ")
    assert "; (2) adapters/b: adapter_config.json: bias: expected none" in message
    assert "max_lora_rank" not in message


def test_the_least_rank_that_holds_all_is_told(model_dir: Path) -> None:
    write_adapter(model_dir / "adapters" / "a", LLAMA, rank=24)
    write_adapter(model_dir / "adapters" / "b", LLAMA, rank=40, use_dora=True)
    message = refused(model_dir, 16)
    assert "adapters/a: adapter_config.json: rank 24 is above option.max_lora_rank=16" in message
    assert "rank 40 is above option.max_lora_rank=16" in message
    assert message.endswith("; option.max_lora_rank=64 would hold all adapters that were found")


def test_no_rank_is_told_where_none_holds_all(model_dir: Path) -> None:
    write_adapter(model_dir / "adapters" / "a", LLAMA, rank=600, targets=["q_proj"])
    assert refused(model_dir, 16) == "adapters/a: adapter_config.json: rank 600 is above option.max_lora_rank=16"


def test_the_rank_that_vllm_is_told(model_dir: Path) -> None:
    def rank(**options: str) -> int:
        settings = with_lora(model_dir, **options)
        return chosen_rank(settings, read_all(found(settings), base=LLAMA, max_rank=None)[0])

    assert rank() == 16
    write_adapter(model_dir / "adapters" / "small", LLAMA, rank=4)
    assert rank() == 16
    write_adapter(model_dir / "adapters" / "large", LLAMA, rank=40)
    assert rank() == 64
    assert rank(max_lora_rank="8") == 8


def test_how_many_adapters_vllm_keeps(model_dir: Path) -> None:
    settings = with_lora(model_dir, max_loras="3")
    assert [chosen_memory(settings, count) for count in (0, 3, 10)] == [6, 6, 13]
    assert chosen_memory(with_lora(model_dir, max_cpu_loras="5"), 10) == 5
