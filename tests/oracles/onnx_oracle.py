"""What onnx and onnxruntime say of exported models: onnx_oracle.py FOLDER check|run

check: onnx.checker with full shape inference on every FOLDER/*.onnx. run: onnxruntime on MODEL.onnx with every input
FOLDER/MODEL.KEY.x.npy and its further inputs FOLDER/MODEL.KEY.x.NAME.npy, which leaves FOLDER/MODEL.KEY.y.npy. Arrays are f64 there, and in the model of the
types that it says."""
import glob
import os
import sys

try:
    if sys.argv[2] == "check":
        import onnx
    else:
        import numpy as np
        import onnxruntime
except ImportError:
    sys.exit(77)

folder = sys.argv[1]
for path in sorted(glob.glob(os.path.join(folder, "*.onnx"))):
    stem = path[:-len(".onnx")]
    if sys.argv[2] == "check":
        model = onnx.load(path)
        onnx.checker.check_model(model, full_check=True)
        inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True)
        assert inferred.graph.output[0].type == model.graph.output[0].type, path
        dims = [d.dim_param or d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        assert dims[0] == "N" and all(isinstance(d, int) for d in dims[1:]), dims
        continue
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 2
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = {i.name: {"tensor(float)": np.float32, "tensor(int64)": np.int64}[i.type] for i in session.get_inputs()}
    for x in sorted(glob.glob(stem + ".*.x.npy")):
        files = {name: x if name == "input" else x[:-len("npy")] + name + ".npy" for name in given}
        y, = session.run(["output"], {name: np.load(files[name]).astype(given[name]) for name in given})
        np.save(x[:-len("x.npy")] + "y.npy", y.astype(np.float64))
