"""The server keeps to its own description: requests made from its schema, right ones and wrong ones."""

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from serve.pictures import as_file, seven

OPERATIONS = [("GET", "/api/models"), ("POST", "/api/predict"), ("POST", "/api/draw")]
CASES = 25
"""Requests of each test below: 150 in all."""

load_all_checks()
CHECKED = CHECKS.get_by_names(
    [
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_headers_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
        "unsupported_method",
    ]
)


@pytest.fixture(scope="module")
def schema(port):
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")


def try_out(operation, mode, check, **fields):
    """Send requests of one kind that are made from the schema, the same ones every time, with some fields as given."""

    @settings(
        max_examples=CASES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(operation.as_strategy(generation_mode=mode))
    def run(case):
        if fields:
            case.body.update(fields)
        response = case.call(timeout=60)
        case.validate_response(response, checks=CHECKED)
        check(response)

    run()


def test_every_operation_is_tried(schema):
    found = [(each.ok().method.upper(), each.ok().path) for each in schema.get_all_operations()]
    assert sorted(found) == sorted(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
def test_what_the_schema_allows_is_accepted_or_the_schema_says_why_not(schema, method, path):
    def check(response):
        assert response.status_code != 422, f"the schema allows it: {response.text}"
        assert "empty" not in response.text, "the schema has a least length"

    try_out(schema[path][method], GenerationMode.POSITIVE, check)


def test_a_picture_with_fields_that_the_schema_allows_is_answered(schema):
    def check(response):
        assert response.status_code in (200, 404), response.text  # 404: no such model or class

    operation = schema["/api/predict"]["POST"]
    try_out(operation, GenerationMode.POSITIVE, check, file=as_file(seven()))


@pytest.mark.parametrize(("method", "path"), OPERATIONS[1:])
def test_what_the_schema_does_not_allow_is_refused_in_a_sentence(schema, method, path):
    def check(response):
        assert 400 <= response.status_code < 500
        assert response.json()["detail"]

    try_out(schema[path][method], GenerationMode.NEGATIVE, check)
