"""Files with rows are for their owner only, also where a folder was there before."""

import stat

from cdc_core.private_files import create_private, private_folder, write_private


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_and_those_above_it_are_private(tmp_path):
    made = private_folder(tmp_path / "a" / "b")
    assert (mode(made), mode(made.parent)) == (0o700, 0o700)


def test_an_existing_folder_is_narrowed_but_none_that_others_use(tmp_path, monkeypatch):
    for name, given, wanted in (("own", 0o755, 0o700), ("shared", 0o1777, 0o1777), ("private", 0o700, 0o700)):
        folder = tmp_path / name
        folder.mkdir()
        folder.chmod(given)
        private_folder(folder)
        assert mode(folder) == wanted
    home = tmp_path / "home"
    (home / "work").mkdir(parents=True)
    home.chmod(0o755)
    monkeypatch.chdir(home / "work")
    (home / "work").chmod(0o755)
    for folder in (home, home / "work"):
        private_folder(folder)
        assert mode(folder) == 0o755


def test_a_file_is_private_and_replaced_as_a_whole(tmp_path):
    path = tmp_path / "x"
    path.write_text("before")
    path.chmod(0o644)
    write_private(path, b"after")
    assert (path.read_bytes(), mode(path)) == (b"after", 0o600)
    assert [each.name for each in tmp_path.iterdir()] == ["x"]
    create_private(tmp_path / "y")
    with open(tmp_path / "y", "wb") as later:
        later.write(b"rows")
    assert mode(tmp_path / "y") == 0o600
