"""A resources server for NeMo-Gym that sends its rows to `prill serve` for judgement. Copy this
folder to resources_servers/prill_judge of Gym.

A row without a verdict is written to the failures file and tried again on resume, because Gym's
metrics would count it as 0.
"""

from nemo_gym.base_resources_server import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResourcesServerConfig,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.rollout_collection import NG_FAILURE_CLASS_KEY
from nemo_gym.server_utils import request
from pydantic import ConfigDict


class JudgeConfig(BaseResourcesServerConfig):
    # add ?key=… if the service requires a token
    judge_url: str = "http://127.0.0.1:8700/verify"


class JudgeRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")  # keeps the row's own fields, including `trajectory`


class JudgeResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class JudgeServer(SimpleResourcesServer):
    config: JudgeConfig

    async def verify(self, body: JudgeRequest) -> JudgeResponse:
        row = body.model_dump(mode="json")
        answer = await request("POST", self.config.judge_url, json=row)
        if answer.ok:
            return JudgeResponse.model_validate(await answer.json())
        # The service is busy or the row is invalid. An error here would end the whole collection.
        words = (await answer.read()).decode()
        failure = {
            "reward": 0.0,
            NG_FAILURE_CLASS_KEY: "judge_failed",
            "_ng_failure_judge_error": words,
        }
        return JudgeResponse.model_validate(row | failure)

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        judged = [row for row in body.verify_responses if NG_FAILURE_CLASS_KEY not in row]
        return await super().aggregate_metrics(AggregateMetricsRequest(verify_responses=judged))


if __name__ == "__main__":
    JudgeServer.run_webserver()
