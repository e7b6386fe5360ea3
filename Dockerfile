# icda on a CPU, with the encoders for photos and texts.
#   docker build -t icda .
#   docker run --rm -v "$PWD:/data" icda fit photos --out model       # paths below the current folder
#   docker run --rm -v "$PWD:/data" icda demo --out demo
FROM python:3.12-slim

# torch from the index of CPU wheels: a tenth of the size of the one with CUDA.
RUN pip install --no-cache-dir torch --index-url https://download.pytorch.org/whl/cpu

WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir ".[encoders,serve,explain]" && rm -rf /src

RUN useradd --create-home icda
USER icda
ENV OMP_WAIT_POLICY=PASSIVE HF_HUB_OFFLINE=1
WORKDIR /data
ENTRYPOINT ["icda"]
CMD ["--help"]
