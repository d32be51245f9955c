# Debian with Python from mmdebstrap. Base of the images of the trainer (trainer.Dockerfile) and the operator.
FROM scratch
ADD rootfs.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
CMD ["/bin/bash"]
