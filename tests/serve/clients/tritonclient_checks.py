# SPDX-License-Identifier: Apache-2.0
"""Drives a server with tritonclient[http]: what it calls and reads by default, and all that it can ask of this server.

Called by `run` with a file that says where the server is and which embeddings are right. Prints the number of checks.
"""
import numpy as np
import tritonclient.http as http
from tritonclient.utils import InferenceServerException

import checks
from checks import check


def refused(call, part):
    checks.refused(InferenceServerException, call, part)


def make_input(name, values, datatype, is_binary):
    tensor = http.InferInput(name, list(values.shape), datatype)
    tensor.set_data_from_numpy(values, binary_data=is_binary)
    return tensor


def make_inputs(reference, kind, is_binary):
    if kind == "text":
        texts = np.array([text.encode() for text in reference["texts"]], dtype=np.object_)
        return [make_input("text", texts, "BYTES", is_binary)]
    longest = max(len(ids) for ids in reference["ids"])
    ids = np.zeros((len(reference["ids"]), longest), dtype=np.int64)
    mask = np.zeros_like(ids)
    for row, values in enumerate(reference["ids"]):
        ids[row, :len(values)] = values
        mask[row, :len(values)] = 1
    return [make_input("input_ids", ids, "INT64", is_binary), make_input("attention_mask", mask, "INT64", is_binary)]


def check_metadata(client, model):
    check(client.is_server_live() and client.is_server_ready(), "the server is not ready")
    check(client.is_model_ready(model) and client.is_model_ready(model, "1"), "the model is not ready")
    check(not client.is_model_ready("none"), "a model that is not there is ready")
    check("binary_tensor_data" in client.get_server_metadata()["extensions"], "no binary tensors")
    metadata = client.get_model_metadata(model)
    check(metadata["name"] == model and metadata["versions"] == ["1"], metadata)
    check(metadata["outputs"][0]["datatype"] == "FP32", metadata)
    check(client.get_model_config(model)["max_batch_size"] == 0, "the configuration")
    check(client.get_model_repository_index()[0]["state"] == "READY", "the index")
    refused(lambda: client.get_model_metadata(model, "2"), "has no version '2'")


def check_inference(client, reference):
    model, right = reference["model"], np.array(reference["embeddings"], dtype=np.float32)
    for kind in "text", "ids":
        for is_binary in True, False:
            inputs = make_inputs(reference, kind, is_binary)
            outputs = {"default": None, "binary": [http.InferRequestedOutput("embedding", binary_data=True)],
                       "json": [http.InferRequestedOutput("embedding", binary_data=False)]}
            for name, output in outputs.items():
                result = client.infer(model, inputs, outputs=output, request_id="7", priority=1, timeout=60000000,
                                      parameters={"mine": "x"})
                found = result.as_numpy("embedding")
                check(found.shape == right.shape and np.allclose(found, right, atol=1e-5), f"{kind}, {is_binary}, {name}")
                check(result.get_response()["id"] == "7", "the id")
    future = client.async_infer(model, make_inputs(reference, "text", True), model_version="1")
    check(np.allclose(future.get_result().as_numpy("embedding"), right, atol=1e-5), "async_infer")
    inputs = make_inputs(reference, "text", True)
    refused(lambda: client.infer("none", inputs), "there is no model 'none'")
    refused(lambda: client.infer(model, inputs, sequence_id=5), "no sequence")
    refused(lambda: client.infer(model, inputs, outputs=[http.InferRequestedOutput("logits")]), "no output 'logits'")
    refused(lambda: client.infer(model, inputs, request_compression_algorithm="gzip"), "coding 'gzip'")
    refused(lambda: client.infer(model, inputs, timeout=-1), "microseconds from 0")


def check_statistics(client, model):
    stats = client.get_inference_statistics(model)["model_stats"][0]
    check(stats["inference_stats"]["success"]["count"] > 0, stats)
    check(client.get_inference_statistics()["model_stats"][0]["name"] == model, "all statistics")


def check_repository(client, admin, model):
    refused(lambda: client.load_model(model), "only at the address for management")
    admin.unload_model(model)
    check(not client.is_model_ready(model), "an unloaded model is ready")
    admin.load_model(model)
    check(client.is_model_ready(model), "a loaded model is not ready")
    refused(lambda: admin.load_model("none"), "there is no model 'none'")
    refused(lambda: admin.load_model(model, config="{}"), "no parameter but")


def main():
    reference = checks.read_reference()
    client = http.InferenceServerClient(reference["url"].removeprefix("http://"), concurrency=2)
    admin = http.InferenceServerClient(reference["admin_url"].removeprefix("http://"))
    check_metadata(client, reference["model"])
    check_inference(client, reference)
    check_statistics(client, reference["model"])
    check_repository(client, admin, reference["model"])
    print(checks.count)


main()
