# Debian with Python from mmdebstrap. Base of the trainer's (trainer.Dockerfile) and the operator's image.
FROM scratch
ADD rootfs.tar /
ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8
CMD ["/bin/bash"]
