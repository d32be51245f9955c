"""The signature of requests for objects."""

from __future__ import annotations

from rlt_pod.download.signature import Keys, sign


def test_the_signature_is_the_one_of_amazons_example() -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, Get Bucket Lifecycle."""
    keys = Keys("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "", "us-east-1")
    url = "https://examplebucket.s3.amazonaws.com/"
    headers = sign(keys, "GET", url, "lifecycle=", "20130524T000000Z")
    signature = "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"
    assert headers["Authorization"].endswith(
        f"us-east-1/s3/aws4_request, SignedHeaders=host;x-amz-content-sha256;x-amz-date, Signature={signature}"
    )


def test_keys_are_not_in_their_representation() -> None:
    found = Keys.find({"AWS_ACCESS_KEY_ID": "the-id", "AWS_SECRET_ACCESS_KEY": "the-secret"}, region="x")
    assert "the-secret" not in repr(found)
    assert Keys.find({"AWS_ACCESS_KEY_ID": "the-id"}, region="x") is None
