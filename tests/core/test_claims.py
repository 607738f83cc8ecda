"""Claims that a reproduction judged are kept as they were found."""

import json

from assay.core.claims import Claim, save_claims


def test_claims_are_written_as_a_list_or_by_data_set(tmp_path):
    held, untested = Claim("a is above b", "2 against 1", True), Claim("c", "no model here", None)
    save_claims(tmp_path, [held, untested])
    plain = [
        {"claim": "a is above b", "found": "2 against 1", "holds": True},
        {"claim": "c", "found": "no model here", "holds": None},
    ]
    assert json.loads((tmp_path / "claims.json").read_text()) == plain
    save_claims(tmp_path, {"sea": [held]})
    assert json.loads((tmp_path / "claims.json").read_text()) == {"sea": plain[:1]}
