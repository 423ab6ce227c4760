"""A mixture's head on a room's track of poses: which response of each source is heard when."""

from typing import Any

import numpy as np

from wearllama.simulation.bank import RirBank
from wearllama.simulation.motion import Pose, Waypoints, draw_track


def draw_motion(moving: float, bank: RirBank, room: str, seconds: float, rng: np.random.Generator) -> Waypoints:
    """(seconds, pose) of a head that moves during a mixture; empty where it stays still or the room has one pose."""
    if rng.uniform() >= moving:
        return ()
    poses = room_poses(bank, room)
    return draw_track(poses, seconds, rng) if len(poses) > 1 else ()


def room_poses(bank: RirBank, room: str) -> list[Pose]:
    """The poses of a room along its track."""
    entries = (bank.entries[index] for index in bank.select(room=room, pose=None))
    return sorted({Pose(entry.pose, entry.turn_deg, entry.ahead_m) for entry in entries})


def follow(track: Waypoints, bank: RirBank, rir: int) -> Waypoints:
    """The path of the source whose response in pose 0 is ``rir``: (seconds, entry).

    Raises:
        ValueError: the bank lacks this source in a pose.
    """
    entry = bank.entries[rir]
    if not track or not entry.source:
        return ((0.0, rir),)
    in_pose = {bank.entries[i].pose: i for i in bank.select(room=entry.room, source=entry.source, pose=None)}
    if missing := [pose for _, pose in track if pose not in in_pose]:
        raise ValueError(f"{bank.path}: {entry.source} has no response for the poses {missing}")
    return tuple((time, in_pose[pose]) for time, pose in track)


def motion_metadata(track: Waypoints, bank: RirBank, room: str) -> list[dict[str, Any]]:
    """The track as JSON values: when the head is how far turned and walked."""
    poses = {pose.number: pose for pose in room_poses(bank, room)}
    return [
        {"time_s": round(time, 3), "turn_deg": poses[number].turn_deg, "ahead_m": poses[number].ahead_m}
        for time, number in track
    ]
