"""Calls Amazon's own library as the lines on standard input say, and prints one answer a line."""

import json
import sys

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

clients = {
    service: boto3.client(
        service,
        endpoint_url=sys.argv[1],
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )
    for service in ("sqs", "sns")
}
for line in sys.stdin:
    call = json.loads(line)
    try:
        answer = getattr(clients[call["service"]], call["operation"])(**call["arguments"])
    except ClientError as error:
        answer = {"Error": error.response["Error"]}
    print(json.dumps(answer, default=str), flush=True)
