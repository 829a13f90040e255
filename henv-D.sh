source /root/env.sh; cd /root/h-D; export PYTHONPATH=$PWD/src OMP_NUM_THREADS=1
