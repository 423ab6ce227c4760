"""One checkpoint in other scenes: overlap, distance and noise swept, measured responses, other arrays."""

from demo import Stage  # beside the folder

from wearllama.evaluation.tables import Table

from .study import WEARVOX, Setup, Study, rate_table

SWEEPS = {
    "overlap": ("overlap:0", "overlap:0.25", "overlap:0.5", "overlap:1"),
    "distance": ("distance:0.7", "distance:1", "distance:1.4", "distance:2"),
    "noise": ("scene_snr:20", "scene_snr:10", "scene_snr:5", "scene_snr:0", "scene_snr:-5"),
}
ARRAYS = ("aria7", "easycom4")


def _sweep_stages(setup: Setup) -> list[Stage]:
    ckpt = f"{setup.demo}/sft"
    names = SWEEPS if not setup.fast else {name: values[:1] for name, values in SWEEPS.items()}
    conditions = ",".join(condition for values in names.values() for condition in values)
    return [setup.evaluate("wearvox", ckpt), setup.evaluate("wearvox", ckpt, f"condition=[{conditions}]", minutes=12)]


def _sweep_tables(setup: Setup) -> list[Table]:
    ckpt = f"{setup.demo}/sft"
    clean = {"as recorded": setup.rates("wearvox", ckpt)}
    tables = []
    for name, values in SWEEPS.items():
        kept = values[:1] if setup.fast else values
        heard = {value: setup.rates("wearvox", ckpt, condition=value) for value in kept}
        tables.append(rate_table(f"Swept: {name}", clean | heard, WEARVOX, _ABOUT[name]))
    return tables


_ABOUT = {
    "overlap": "A bystander talks over the last share of the words; 0: right behind them.",
    "distance": "Everybody but the wearer stands about so many metres away, in another room where needed.",
    "noise": "The scene's own noise at this SNR in dB at c_0.",
}


def _measured_stages(setup: Setup) -> list[Stage]:
    bank = f"{setup.runs}/glasses_bank"
    ckpt = f"{setup.demo}/sft"
    return [
        Stage("bank", "import the responses measured on glasses",
              f"tools/import_rirs.py measured=glasses_rirs folder={setup.glasses} out_dir={bank}", 0.2),
        Stage("record", "record the demo's scenes through them",
              f"tools/record_demo.py array=glasses_lab bank={bank} out_dir={setup.runs}/glasses", 2),
        setup.evaluate("wearvox", ckpt),
        setup.evaluate("wearvox", ckpt, f"array=glasses_lab data={setup.runs}/glasses/wearvox"),
    ]  # fmt: skip


def _measured_tables(setup: Setup) -> list[Table]:
    ckpt = f"{setup.demo}/sft"
    found = {"simulated responses": setup.rates("wearvox", ckpt),
             "measured responses": setup.rates("wearvox", ckpt, array="glasses_lab")}  # fmt: skip
    return [rate_table("Trained on simulated responses, tested on both", found, WEARVOX)]


def _geometry_stages(setup: Setup) -> list[Stage]:
    ckpt = f"{setup.demo}/sft"
    found = [setup.evaluate("wearvox", ckpt)]
    for array in ARRAYS:
        folder = f"{setup.runs}/{array}"
        found += [
            Stage(f"bank {array}", "simulate the array's responses",
                  f"tools/build_rir_bank.py array={array} out_dir={folder}/rir_bank bank.train_rooms=0", 1),
            Stage(f"record {array}", "record the demo's scenes with it",
                  f"tools/record_demo.py array={array} bank={folder}/rir_bank out_dir={folder}", 2),
            setup.evaluate("wearvox", ckpt, f"array={array} data={folder}/wearvox"),
        ]  # fmt: skip
    return found


def _geometry_tables(setup: Setup) -> list[Table]:
    ckpt = f"{setup.demo}/sft"
    found = {"glasses5 (its own)": setup.rates("wearvox", ckpt)}
    found |= {array: setup.rates("wearvox", ckpt, array=array) for array in ARRAYS}
    return [rate_table("Trained on glasses5, tested on other arrays", found, WEARVOX)]


def studies() -> dict[str, Study]:
    """Studies by name."""
    return {
        "sweeps": Study(
            "Overlap, distance and noise",
            "The demo's checkpoint; scenes of its WearVox set rendered anew, one thing changed at a time.",
            _sweep_stages, _sweep_tables,
        ),
        "measured": Study(
            "Simulated training, measured responses",
            "The demo's checkpoint, trained on simulated responses, hears the same scenes through responses that were "
            "measured on glasses in two rooms.", _measured_stages, _measured_tables,
        ),
        "geometry": Study(
            "Other arrays",
            "The demo's checkpoint, trained on glasses5, hears the same scenes, rooms and places through other arrays; "
            "c_0 and the beam are those of each array.", _geometry_stages, _geometry_tables,
        ),
    }  # fmt: skip
