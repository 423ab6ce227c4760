"""One checkpoint in other scenes: overlap, distance and noise swept, measured responses, other arrays."""

from demo import Stage  # beside the folder

from wearllama.evaluation.tables import Table

from .study import VGBENCH, WEARVOX, Setup, Study, rate_table

SWEEPS = {
    "overlap": ("overlap:0", "overlap:0.25", "overlap:0.5", "overlap:1"),
    "distance": ("distance:0.7", "distance:1", "distance:1.4", "distance:2"),
    "noise": ("scene_snr:20", "scene_snr:10", "scene_snr:5", "scene_snr:0", "scene_snr:-5"),
}
ARRAYS = ("aria7", "easycom4")
PAIRS = ("c_x-c_0", "c_x-c_1", "c_0-c_1")


def _sweep_stages(setup: Setup) -> list[Stage]:
    ckpt = f"{setup.demo}/sft"
    names = _swept(setup)
    conditions = ",".join(condition for values in names.values() for condition in values)
    return [
        setup.evaluate("wearvox", ckpt),
        setup.evaluate("wearvox", ckpt, f"condition=[{conditions}]", minutes=12),
        setup.evaluate("vgbench", ckpt, f"condition=[{','.join(names['distance'])}]", minutes=3),
    ]


def _sweep_tables(setup: Setup) -> list[Table]:
    ckpt = f"{setup.demo}/sft"
    clean = {"as recorded": setup.rates("wearvox", ckpt)}
    tables = []
    for name, values in _swept(setup).items():
        heard = {value: setup.rates("wearvox", ckpt, condition=value) for value in values}
        tables.append(rate_table(f"Swept: {name}", clean | heard, WEARVOX, _ABOUT[name]))
    far = {value: setup.rates("vgbench", ckpt, condition=value) for value in _swept(setup)["distance"]}
    return [*tables, rate_table("VGBench: distance", far, VGBENCH, "The second speaker's place; the wearer stays.")]


def _swept(setup: Setup) -> dict[str, tuple[str, ...]]:
    return {name: values[:1] if setup.fast else values for name, values in SWEEPS.items()}


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
    found = [setup.evaluate("wearvox", ckpt, f"pair=[{','.join(PAIRS)}]", minutes=2)]
    banks = {array: f"{setup.runs}/{array}/rir_bank" for array in ARRAYS}
    for array, bank in banks.items():
        found += [
            Stage(f"bank {array}", "simulate the array's responses",
                  f"tools/build_rir_bank.py array={array} out_dir={bank}", 1),
            Stage(f"record {array}", "record the demo's scenes with it",
                  f"tools/record_demo.py array={array} bank={bank} out_dir={setup.runs}/{array}", 2),
        ]  # fmt: skip
    trained = {"mc": "", "arrays": f"data.other_banks=[{','.join(banks.values())}]"}  # mc: the same as of other studies
    for seed in setup.seeds:
        for name, changes in trained.items():
            found.append(setup.train(name, seed, changes))
            found += [setup.evaluate("wearvox", setup.run(name, seed), heard) for heard in _heard(setup).values()]
    return found


def _heard(setup: Setup) -> dict[str, str]:
    """Options by array that the scenes were recorded with."""
    return {"glasses5": ""} | {array: f"array={array} data={setup.runs}/{array}/wearvox" for array in ARRAYS}


def _geometry_tables(setup: Setup) -> list[Table]:
    pairs = {pair: setup.rates("wearvox", f"{setup.demo}/sft", pair=pair) for pair in PAIRS}
    found = {
        f"{trained}, heard with {array}, seed {seed}":
            setup.rates("wearvox", setup.run(name, seed), array=array if array in ARRAYS else None)
        for seed in setup.seeds
        for array in _heard(setup)
        for name, trained in (("mc", "glasses5 alone"), ("arrays", "all three"))
    }  # fmt: skip
    return [
        rate_table(
            "The demo's checkpoint with other channels", pairs, WEARVOX, "The first is what it was trained with."
        ),
        rate_table("Trained on one array, or on three", found, WEARVOX),
    ]


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
            "Other channels, other arrays",
            "The same scenes, rooms and places through channels and arrays that a checkpoint was not trained with; c_0 "
            "and the beam are those of each array. The form of WearVox's Table 6, and beyond it.",
            _geometry_stages, _geometry_tables,
        ),
    }  # fmt: skip
