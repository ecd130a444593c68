# SPDX-License-Identifier: Apache-2.0
"""Drives a server with the package openai, which asks for base64 unless it is told otherwise.

Called by `run` with a file that says where the server is and which embeddings are right. Prints the number of checks.
"""
import base64

import numpy as np
import openai

import checks
from checks import check, refused


def main():
    reference = checks.read_reference()
    client = openai.OpenAI(base_url=reference["url"] + "/v1", api_key="none", max_retries=0)
    model, right = reference["model"], np.array(reference["embeddings"])
    token_count = sum(len(ids) for ids in reference["ids"])
    for given in reference["texts"], reference["ids"]:
        for form in {}, {"encoding_format": "float"}, {"encoding_format": "base64"}, {"user": "me"}:
            answer = client.embeddings.create(model=model, input=given, **form)
            check([row.index for row in answer.data] == list(range(len(right))), "the order")
            found = [row.embedding for row in answer.data]
            if form.get("encoding_format") == "base64":  # the package leaves the text to its caller
                found = [np.frombuffer(base64.b64decode(row, validate=True), dtype="<f4") for row in found]
            check(np.allclose(found, right, atol=1e-5), f"{form}")
            check(answer.usage.prompt_tokens == token_count, answer.usage)
            check(answer.model == model, answer.model)
    for given in reference["texts"][0], reference["ids"][0]:
        answer = client.embeddings.create(model=model, input=given)
        check(np.allclose(answer.data[0].embedding, right[0], atol=1e-5), "one input")
    short = client.embeddings.create(model=model, input=reference["texts"][0], dimensions=2).data[0].embedding
    check(len(short) == 2 and abs(np.linalg.norm(short) - 1) < 1e-5, "dimensions")
    check([entry.id for entry in client.models.list()] == [model], "the models")
    check(client.models.retrieve(model).id == model, "the model")
    refused(openai.NotFoundError, lambda: client.embeddings.create(model="none", input="a"), "there is no model 'none'")
    refused(openai.BadRequestError, lambda: client.embeddings.create(model=model, input=[]), "there is no input")
    refused(openai.UnprocessableEntityError, lambda: client.embeddings.create(model=model, input=[1 << 30]), "id 1073741824")
    print(checks.count)


main()
