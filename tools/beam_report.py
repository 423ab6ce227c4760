"""Beams of an array: gain over self-noise and over a diffuse field per band, patterns, and what a talker loses.

Run as: python tools/beam_report.py array=glasses5
        python tools/beam_report.py array=glasses5 azimuths_deg=[0,60,-60]
        python tools/beam_report.py measured.folder=RESPONSES      # design and judge on measured responses

Prints the tables and writes OUT_DIR/report.md, results.json, gains.png and patterns.png.  With measured responses the
diffuse field is what comes evenly from all measured directions (horizontal ones: a cylindrical field).
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from beams.bench import Bench, measured_bench, modelled_bench
from beams.talker import talker_table

from wearllama.atomic import replacing, write_text
from wearllama.audio.array import load_array
from wearllama.audio.beam_metrics import (
    BANDS_HZ,
    band_means,
    diffuse_gain_db,
    gains_under_mismatch_db,
    pattern_db,
    white_noise_gain_db,
)
from wearllama.audio.beamforming import Beam, design_freqs_hz
from wearllama_launch import existing_path, launch

LEAST_DB = {"nominal": (12.0, 15.0, 11.0, 4.0, 2.0), "mismatch": (9.0, 10.0, 8.0, 3.5, 2.0)}
"""Diffuse gain that the fixed beam on measured glasses responses has to reach, per band."""


@dataclass(kw_only=True)
class Measured:
    """Where measured responses lie."""

    folder: str | None = None
    channels: tuple[int, ...] = (4, 2, 5, 1, 6)
    """Microphones of the files, c_0 first."""
    directions: str = "horizontal_responses.npz"
    mouth: tuple[str, ...] = ("labRoomDry_mouthSimulator.wav", "labRoomRev_mouthSimulator.wav")
    """Own voice: the beam is designed on the first and judged on each."""


@dataclass(kw_only=True)
class BeamReport:
    array: str = "glasses5"
    """Name in conf/array or a YAML file."""
    azimuths_deg: tuple[float, ...] = (0.0, 90.0, 180.0, -90.0)
    """Directions of the NLCMV beams (head model only)."""
    wng_floor_db: float = 0.4
    """Of the fixed beam's design; its finite filters fall up to .4 dB below."""
    gain_sd_db: float = 1.0
    phase_deg: float = 5.0
    """Mismatch of the microphones."""
    draws: int = 200
    talker_deg: float = 60.0
    """Where the other talker of the last table stands."""
    measured: Measured = field(default_factory=Measured)
    out_dir: str = "runs/beam_report"


@launch("beam_report", BeamReport)
def main(config: BeamReport) -> None:
    if config.measured.folder is None:
        bench = modelled_bench(load_array(config.array), config.wng_floor_db, config.azimuths_deg)
    else:
        folder = existing_path(config.measured.folder, "measured.folder")
        files = [folder / name for name in config.measured.mouth]
        bench = measured_bench(
            files, folder / config.measured.directions, config.measured.channels, config.wng_floor_db
        )
    rows = [row for name, beam, source in bench.cases for row in gain_rows(name, beam, bench, source, config)]
    talker = talker_table(bench, config.talker_deg)
    text = "\n\n".join([f"# Beams of {bench.name}", gain_table(rows, config), *verdict(rows, config), talker.text()])
    out = Path(config.out_dir)
    out.mkdir(parents=True, exist_ok=True)
    results = {"array": bench.name, "bands_hz": BANDS_HZ, "gains": rows, "talker": talker.rows}
    write_text(out / "report.md", text + "\n")
    write_text(out / "results.json", json.dumps(results, indent=1) + "\n")
    draw_gains(bench, out / "gains.png")
    draw_patterns(bench, out / "patterns.png")
    print(f"{text}\n\nwritten: {out}/report.md, results.json, gains.png, patterns.png")


def gain_rows(name: str, beam: Beam, bench: Bench, source: str, config: BeamReport) -> list[dict[str, Any]]:
    """White-noise and diffuse gain of a beam for one source, nominal and under mismatch."""
    heard = bench.fields[source]
    inside_F = (heard.freqs_F >= BANDS_HZ[0][0]) & (heard.freqs_F < BANDS_HZ[-1][1])
    white_F, diffuse_F = white_noise_gain_db(beam, heard), diffuse_gain_db(beam, heard)
    white_RF, diffuse_RF = gains_under_mismatch_db(
        beam, heard, gain_sd_db=config.gain_sd_db, phase_deg=config.phase_deg, draws=config.draws
    )
    return [
        {
            "beam": name, "source": source, "device": device, "least_white_db": round(float(white[inside_F].min()), 2),
            "white_db": np.round(band_means(heard.freqs_F, white), 1).tolist(),
            "diffuse_db": np.round(band_means(heard.freqs_F, diffuse), 1).tolist(),
        }
        for device, white, diffuse in (
            ("nominal", white_F, diffuse_F), ("mismatch", white_RF.mean(axis=0), diffuse_RF.mean(axis=0)),
        )
    ]  # fmt: skip


def gain_table(rows: list[dict[str, Any]], config: BeamReport) -> str:
    """Markdown: diffuse gain over c_0 and white-noise gain over the mean microphone, means over frequency in dB."""
    bands = " / ".join(f"{low}-{high}" for low, high in BANDS_HZ)
    lines = [
        f"Gain over c_0 in a diffuse field, and over self-noise relative to the mean microphone, dB in {bands} Hz.",
        f"Mismatch: gains N(0, {config.gain_sd_db:g} dB), phases within +-{config.phase_deg:g} degrees, mean of "
        f"{config.draws} devices.",
        "",
        "| beam | source | device | diffuse gain | white-noise gain | its least |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        diffuse, white = (" / ".join(f"{value:.1f}" for value in row[key]) for key in ("diffuse_db", "white_db"))
        lines.append(
            f"| {row['beam']} | {row['source']} | {row['device']} | {diffuse} | {white} | {row['least_white_db']:.2f} |"
        )
    return "\n".join(lines)


def verdict(rows: list[dict[str, Any]], config: BeamReport) -> list[str]:
    """On measured responses: whether the fixed beam reaches what is asked, for every source and device."""
    if config.measured.folder is None:
        return []
    lines = []
    for row in (row for row in rows if row["beam"] == "fixed"):
        least = LEAST_DB[row["device"]]
        met = all(found >= wanted for found, wanted in zip(row["diffuse_db"], least, strict=True))
        met &= row["device"] != "nominal" or row["least_white_db"] >= 0
        lines.append(f"- fixed, {row['source']}, {row['device']}: at least {least}: {'met' if met else 'NOT MET'}")
    return ["\n".join(lines)]


def draw_gains(bench: Bench, path: Path) -> None:
    """Gains over frequency, one line a beam."""
    figure, axes = plt.subplots(1, 2, figsize=(12, 4.5), sharex=True)
    for name, beam, source in bench.cases:
        heard = bench.fields[source]
        label = f"{name}, {source}"
        axes[0].semilogx(heard.freqs_F[1:], diffuse_gain_db(beam, heard)[1:], label=label, linewidth=1)
        axes[1].semilogx(heard.freqs_F[1:], white_noise_gain_db(beam, heard)[1:], label=label, linewidth=1)
    for axis, title in zip(axes, ("gain over c_0, diffuse field (dB)", "white-noise gain, mean mic (dB)"), strict=True):
        axis.set(title=title, xlabel="Hz", xlim=(100, 8000), ylim=(-15, 25))
        axis.grid(alpha=0.3)
    axes[1].legend(fontsize=6)
    _save(figure, path)


def draw_patterns(bench: Bench, path: Path) -> None:
    """Horizontal patterns re c_0: a row a beam, a column a band; ahead is up, left is left."""
    beams = {name: beam for name, beam, _ in bench.cases}
    figure, axes = plt.subplots(
        len(beams), len(BANDS_HZ), figsize=(2.6 * len(BANDS_HZ), 2.7 * len(beams)), squeeze=False,
        subplot_kw={"projection": "polar"},
    )  # fmt: skip
    angle_D = np.deg2rad(np.append(bench.azimuth_D, bench.azimuth_D[0]))
    for row, (name, beam) in zip(axes, beams.items(), strict=True):
        level_DB = pattern_db(beam, bench.transfers_DFM, design_freqs_hz(), bench.reference)
        for axis, band, level_D in zip(row, BANDS_HZ, level_DB.T, strict=True):
            axis.plot(angle_D, np.clip(np.append(level_D, level_D[0]), -30, 10), linewidth=1.2)
            axis.set_theta_zero_location("N")
            axis.set(ylim=(-30, 10), yticks=(-20, -10, 0, 10), title=f"{name}\n{band[0]}-{band[1]} Hz")
            axis.tick_params(labelsize=6)
            axis.title.set_fontsize(7)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    figure.tight_layout()
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=110, format="png")
    plt.close(figure)


if __name__ == "__main__":
    main()
