// Pinocchio's algorithms, and the code that it generates of them, in loops over a batch: what a C++ program would do.
// Built and called by bench/peers/pinocchio_models.py. Arrays are (batch, n), row by row.

#include <chrono>
#include <string>

#include <pinocchio/algorithm/frames.hpp>
#include <pinocchio/algorithm/jacobian.hpp>
#include <pinocchio/algorithm/kinematics.hpp>
#include <pinocchio/codegen/cppadcg-algo.hpp>

namespace pin = pinocchio;
using Vector = Eigen::VectorXd;
using In = Eigen::Map<const Vector>;
using Out = Eigen::Map<Vector>;
using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// a generated function, compiled with the flags that this file was compiled with
template <typename Algorithm>
struct Generated : Algorithm
{
  using Algorithm::Algorithm;
  using Algorithm::y;

  void prepare()
  {
    this->initLib();
    CppAD::cg::GccCompiler<double> compiler("/usr/bin/gcc");
    compiler.setCompileFlags({"-O3", "-march=native", "-ffast-math", "-fPIC"});
    this->dynamicLibManager_ptr->createDynamicLibrary(compiler, false);
    this->loadLib(false);
  }
};

struct Robot
{
  pin::Model model;
  pin::Data data;
  pin::FrameIndex frame;
  Generated<pin::CodeGenRNEA<double>> rnea;
  Generated<pin::CodeGenABA<double>> aba;
  Generated<pin::CodeGenCRBA<double>> crba;
  Generated<pin::CodeGenRNEADerivatives<double>> rnea_derivatives;
  Generated<pin::CodeGenABADerivatives<double>> aba_derivatives;

  Robot(const pin::Model & m, const std::string & link)
  : model(m), data(m), frame(m.getFrameId(link)), rnea(m), aba(m), crba(m), rnea_derivatives(m), aba_derivatives(m)
  {
  }
};

// a chain of n hinges about z; of each body: placement (R row by row, p), mass, centre of mass, inertia about it
extern "C" Robot * make(int n, const double * placements, const double * inertias, const double * link)
{
  const auto pose = [](const double * x) {
    return pin::SE3(Eigen::Map<const Rows>(x, 3, 3), Eigen::Map<const Eigen::Vector3d>(x + 9));
  };
  pin::Model model;
  model.name = "chain";
  pin::JointIndex joint = 0;
  for (int k = 0; k < n; ++k)
  {
    joint = model.addJoint(joint, pin::JointModelRZ(), pose(placements + 12 * k), "joint" + std::to_string(k));
    const double * y = inertias + 13 * k;
    const pin::Inertia body(y[0], Eigen::Map<const Eigen::Vector3d>(y + 1), Eigen::Map<const Rows>(y + 4, 3, 3));
    model.appendBodyToJoint(joint, body, pin::SE3::Identity());
  }
  model.addFrame(pin::Frame("link", joint, 0, pose(link), pin::BODY));
  return new Robot(model, "link");
}

extern "C" double generate(Robot * r)
{
  const auto before = std::chrono::steady_clock::now();
  r->rnea.prepare();
  r->aba.prepare();
  r->crba.prepare();
  r->rnea_derivatives.prepare();
  r->aba_derivatives.prepare();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - before).count();
}

// cotangents (q, v, w) of an output by its generated Jacobians, which stand in y one after the other
static void pull(double * to, int n, const Vector & y, const In & c)
{
  const Eigen::Map<const Rows> dq(y.data(), n, n), dv(y.data() + n * n, n, n), dw(y.data() + 2 * n * n, n, n);
  Out(to, n).noalias() = dq.transpose() * c;
  Out(to + n, n).noalias() = dv.transpose() * c;
  Out(to + 2 * n, n).noalias() = dw.selfadjointView<Eigen::Upper>() * c;
}

// cotangents (q, v, w) of an output by its three Jacobians, the last of them symmetric
template <typename A, typename B, typename C>
static void pull(double * to, int n, const A & dq, const B & dv, const C & dw, const In & c)
{
  Out(to, n).noalias() = dq.transpose() * c;
  Out(to + n, n).noalias() = dv.transpose() * c;
  Out(to + 2 * n, n).noalias() = dw * c;
}

enum { FK, JACOBIAN, RNEA, CRBA, ABA };

// one robot; `grad` is null where only the value is asked for
static void
plain(Robot & r, int what, const In & q, const In & v, const In & w, const double * cot, double * out, double * grad)
{
  auto & m = r.model;
  auto & d = r.data;
  const int n = m.nv;
  if (what == FK)
  {
    pin::forwardKinematics(m, d, q);
    const auto & X = pin::updateFramePlacement(m, d, r.frame);
    Out(out, 3) = X.translation();
    Eigen::Map<Rows>(out + 3, 3, 3) = X.rotation();
    if (grad)
    {
      pin::computeJointJacobians(m, d, q);
      pin::Data::Matrix6x J = pin::Data::Matrix6x::Zero(6, n);
      pin::getFrameJacobian(m, d, r.frame, pin::LOCAL_WORLD_ALIGNED, J);
      Out(grad, n).noalias() = J.topRows<3>().transpose() * Eigen::Map<const Eigen::Vector3d>(cot);
    }
  }
  if (what == JACOBIAN)
  {
    pin::Data::Matrix6x J = pin::Data::Matrix6x::Zero(6, n);
    pin::computeJointJacobians(m, d, q);
    pin::getFrameJacobian(m, d, r.frame, pin::LOCAL_WORLD_ALIGNED, J);
    Eigen::Map<Rows>(out, 6, n) = J;
  }
  if (what == RNEA && !grad)
    Out(out, n) = pin::rnea(m, d, q, v, w);
  if (what == RNEA && grad)
  {
    pin::computeRNEADerivatives(m, d, q, v, w);
    Out(out, n) = d.tau;
    pull(grad, n, d.dtau_dq, d.dtau_dv, d.M.selfadjointView<Eigen::Upper>(), In(cot, n));
  }
  if (what == CRBA)
  {
    pin::crba(m, d, q, pin::Convention::WORLD);
    Eigen::Map<Rows>(out, n, n) = d.M.selfadjointView<Eigen::Upper>();
  }
  if (what == ABA && !grad)
    Out(out, n) = pin::aba(m, d, q, v, w, pin::Convention::WORLD);
  if (what == ABA && grad)
  {
    pin::computeABADerivatives(m, d, q, v, w);
    Out(out, n) = d.ddq;
    pull(grad, n, d.ddq_dq, d.ddq_dv, d.Minv.selfadjointView<Eigen::Upper>(), In(cot, n));
  }
}

static void generated(Robot & r, int what, const In & q, const In & v, const In & w, const double * cot, double * out, double * grad)
{
  const int n = r.model.nv;
  if (what == RNEA)
  {
    r.rnea.evalFunction(q, v, w);
    Out(out, n) = r.rnea.y;
    if (grad)
    {
      r.rnea_derivatives.evalFunction(q, v, w);
      pull(grad, n, r.rnea_derivatives.y, In(cot, n));
    }
  }
  if (what == CRBA)
  {
    r.crba.evalFunction(q);
    // its upper triangle, row by row
    long at = 0;
    for (int i = 0; i < n; ++i)
      for (int j = i; j < n; ++j, ++at)
        out[i * n + j] = out[j * n + i] = r.crba.y[at];
  }
  if (what == ABA)
  {
    r.aba.evalFunction(q, v, w);
    Out(out, n) = r.aba.y;
    if (grad)
    {
      r.aba_derivatives.evalFunction(q, v, w);
      pull(grad, n, r.aba_derivatives.y, In(cot, n));
    }
  }
}

// sizes are of one robot's output, of its cotangent and of its gradient
extern "C" void
run(Robot * r, int what, int of_code, long batch, const double * q, const double * v, const double * w, const double * cot, double * out, double * grad, const long * sizes)
{
  const int n = r->model.nv;
  for (long k = 0; k < batch; ++k)
  {
    const In qk(q + k * n, n), vk(v + k * n, n), wk(w + k * n, n);
    double * to = grad ? grad + k * sizes[2] : nullptr;
    (of_code ? generated : plain)(*r, what, qk, vk, wk, cot + k * sizes[1], out + k * sizes[0], to);
  }
}
