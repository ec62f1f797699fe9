# A judge over HTTP (docs/how-to/reward-service.md), as a user without privileges.
#   docker build -t prill .
#   docker run -p 8700:8700 -e PRILL_TOKEN -e OPENAI_API_KEY -v "$PWD/runs:/runs:ro" prill --judge vlm --model gpt-4o --media-root /runs
# `docker stop --time 360 NAME` lets it answer what it has accepted. More extras: --build-arg EXTRAS=serve,ocr
FROM python:3.12-slim AS build
ARG EXTRAS=serve
COPY . /src
RUN python -m venv /opt/prill
RUN /opt/prill/bin/python -m pip install --no-cache-dir --disable-pip-version-check --constraint /src/constraints.txt "/src[$EXTRAS]"

FROM python:3.12-slim
COPY --from=build /opt/prill /opt/prill
RUN useradd --create-home --uid 10001 prill
USER prill
WORKDIR /home/prill
ENV PATH=/opt/prill/bin:$PATH PYTHONUNBUFFERED=1
EXPOSE 8700
HEALTHCHECK CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8700/healthz', timeout=5)"]
# Other machines need the token, which `prill serve` refuses to go without.
ENTRYPOINT ["prill", "serve", "--host", "0.0.0.0", "--port", "8700", "--token-env", "PRILL_TOKEN"]
CMD ["--judge", "vlm", "--model", "gpt-4o"]
