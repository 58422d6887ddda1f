"""The joint types, one kernel file each: what `joint_kernels.py` declares, for the joints of one row of the table."""
