"""What every other package uses: errors, kernels and their launches, and kernels as differentiable torch functions.

errors, interrupt     exceptions and Ctrl-C
host                  process-wide settings changed for the length of a block
codegen, modules      how kernels become C++, and when they are compiled
dispatch              kernel functions chosen by a number at run time
rows                  arrays packed into one, each declared once
threads               worker threads of the CPU
ranks                 several processes as one, under torchrun
launch, repeat        one kernel over worlds; the same again with other addresses
passes                one kernel over the items of a large field, many times
tensors               the one file that imports both torch and Warp
arrays, finite        tensors as kernel arguments; checks for NaN and infinity
program, autograd     a pair of kernels as a torch function
custom_vjp            a Python computation and its vjp as a torch function
search_loop           the loop under every search; module_descent: gradient descent on a torch module
"""
