"""Quantised convolutions as MatMulInteger: the numbers of onnxruntime's own ConvInteger, and errors by name."""

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from wearllama.data.onnx_matmul import faster_model, replace_convolutions  # noqa: E402

WEIGHT_SCALE, WEIGHT_ZERO = 0.02, 131


def _model(taps: int, pads: tuple[int, int], dilation: int, *, bias: bool, stride: int = 1):
    """DynamicQuantizeLinear -> ConvInteger [-> Add] -> Cast -> Mul, as the dynamic quantiser writes it."""
    rng = np.random.default_rng(taps)
    weight_OCK = rng.integers(0, 256, (6, 4, taps)).astype(np.uint8)
    bias_O = rng.normal(size=6).astype(np.float32)
    constants = {
        "w": weight_OCK, "w_zero": np.uint8(WEIGHT_ZERO), "w_scale": np.float32(WEIGHT_SCALE), "bias": bias_O,
        "shape": np.array([1, -1, 1]),
    }  # fmt: skip
    node = helper.make_node
    rounding = [
        node("Div", ["bias", "scales"], ["b1"]), node("Floor", ["b1"], ["b2"]), node("Cast", ["b2"], ["b3"], to=6),
        node("Reshape", ["b3", "shape"], ["b4"]), node("Add", ["c", "b4"], ["sum"]),
    ]  # fmt: skip
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["xq", "x_scale", "x_zero"]),
        node("Mul", ["x_scale", "w_scale"], ["scales"]),
        node("ConvInteger", ["xq", "w", "x_zero", "w_zero"], ["c"], name="conv", kernel_shape=[taps], pads=pads,
             dilations=[dilation], strides=[stride], group=1, auto_pad="NOTSET"),
        *(rounding if bias else []),
        node("Cast", ["sum" if bias else "c"], ["f"], to=1),
        node("Mul", ["f", "scales"], ["y"]),
    ]  # fmt: skip
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, c, None]) for n, c in (("x", 4), ("y", 6))]
    used = [
        numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items() if bias or k not in ("bias", "shape")
    ]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:], used)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    onnx.checker.check_model(model, full_check=True)
    return model


def _run(model, x_1CT: np.ndarray) -> np.ndarray:
    onnx.checker.check_model(model, full_check=True)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x_1CT})[0]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("taps", "pads", "dilation"), [(1, (0, 0), 1), (3, (1, 1), 1), (5, (6, 2), 3), (4, (0, 0), 2)])
def test_same_numbers(taps, pads, dilation, bias):
    model = _model(taps, pads, dilation, bias=bias)
    x_1CT = np.random.default_rng(0).normal(1.0, 2.0, (1, 4, 23)).astype(np.float32)
    before = _run(model, x_1CT)
    assert replace_convolutions(model) == 1
    kinds = {node.op_type for node in model.graph.node}
    assert "ConvInteger" not in kinds and "Floor" not in kinds
    after = _run(model, x_1CT)
    assert after.shape == before.shape
    x_scale = (max(x_1CT.max(), 0) - min(x_1CT.min(), 0)) / 255
    slack = 1.01 * x_scale * WEIGHT_SCALE if bias else 0.0  # the quantiser's bias is rounded down, ours is exact
    assert np.all(after - before >= -1e-4) and np.all(after - before <= slack + 1e-4)


def test_strided_convolution_alone_is_an_error():
    with pytest.raises(ValueError, match="no 1-D ConvInteger of stride 1"):
        replace_convolutions(_model(3, (1, 1), 1, bias=True, stride=2))


def test_other_patterns_name_the_node_and_the_file(tmp_path):
    model = _model(3, (1, 1), 1, bias=True)
    next(node for node in model.graph.node if node.op_type == "Floor").op_type = "Ceil"
    path = tmp_path / "other.onnx"
    onnx.save(model, path)
    with pytest.raises(ValueError, match=r"other\.onnx: ConvInteger 'conv' is not in the pattern"):
        faster_model(path)
