"""The server keeps to its own description: requests made from its schema, right ones and wrong ones."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks

load_all_checks()
CHECKS = [
    schemathesis.checks.not_a_server_error,
    *schemathesis.checks.CHECKS.get_by_names(
        [
            "status_code_conformance",
            "content_type_conformance",
            "response_headers_conformance",
            "response_schema_conformance",
            "negative_data_rejection",
            "missing_required_header",
            "unsupported_method",
        ]
    ),
]


@pytest.fixture(scope="module")
def description(port):
    return schemathesis.openapi.from_url(f"http://127.0.0.1:{port}/openapi.json")


schema = schemathesis.pytest.from_fixture("description")


@schema.parametrize()
@settings(max_examples=50, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
def test_responses_are_those_that_the_schema_describes(case):
    response = case.call(timeout=60)
    case.validate_response(response, checks=CHECKS)
    if case.meta.generation.mode.is_positive:
        assert response.status_code != 422, f"the schema allows it: {response.text}"
