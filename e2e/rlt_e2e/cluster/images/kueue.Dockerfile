FROM scratch
COPY kueue /manager
USER 65532:65532
ENTRYPOINT ["/manager"]
