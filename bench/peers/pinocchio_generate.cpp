// Pinocchio's code generation for a chain: writes libraries of C that bench/peers/pinocchio_loops.cpp calls.
// Compiled without optimisation, since only what it generates is timed; usage: generate FILE, with the numbers of a chain.

#include <fstream>
#include <iostream>
#include <vector>

#include <pinocchio/codegen/cppadcg-algo.hpp>

#include "pinocchio_chain.hpp"

template <typename Algorithm>
struct Generated : Algorithm
{
  using Algorithm::Algorithm;

  void write()
  {
    this->initLib();
    CppAD::cg::GccCompiler<double> compiler("/usr/bin/gcc");
    compiler.setCompileFlags({"-O3", "-march=native", "-ffast-math", "-fPIC"});
    this->dynamicLibManager_ptr->createDynamicLibrary(compiler, false);
  }
};

int main(int, char ** arguments)
{
  std::ifstream file(arguments[1]);
  int n;
  file >> n;
  std::vector<double> x(25 * n + 12);
  for (double & each : x)
    file >> each;
  const pin::Model model = chain(n, x.data(), x.data() + 12 * n, x.data() + 25 * n);
  Generated<pin::CodeGenRNEA<double>>(model).write();
  Generated<pin::CodeGenABA<double>>(model).write();
  Generated<pin::CodeGenCRBA<double>>(model).write();
  Generated<pin::CodeGenRNEADerivatives<double>>(model).write();
  Generated<pin::CodeGenABADerivatives<double>>(model).write();
}
