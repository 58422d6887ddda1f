// Pinocchio's algorithms, and the code that it generates of them, in loops over a batch: what a C++ program would do.
// Built and called by bench/peers/pinocchio_models.py. Arrays are (batch, n), row by row.

#include <dlfcn.h>

#include <stdexcept>
#include <vector>

#include <pinocchio/algorithm/aba-derivatives.hpp>
#include <pinocchio/algorithm/aba.hpp>
#include <pinocchio/algorithm/crba.hpp>
#include <pinocchio/algorithm/frames.hpp>
#include <pinocchio/algorithm/jacobian.hpp>
#include <pinocchio/algorithm/kinematics.hpp>
#include <pinocchio/algorithm/rnea-derivatives.hpp>
#include <pinocchio/algorithm/rnea.hpp>

#include "pinocchio_chain.hpp"

using Vector = Eigen::VectorXd;
using In = Eigen::Map<const Vector>;
using Out = Eigen::Map<Vector>;

// a generated function and its output; the third argument is for functions that call others, which these do not
struct Generated
{
  struct None
  {
    void * model;
    void * forward;
    void * reverse;
  };
  void (*call)(double const * const *, double * const *, None) = nullptr;
  Vector y;

  void load(const std::string & library, const std::string & name, int size)
  {
    void * handle = dlopen(("./" + library + "_chain.so").c_str(), RTLD_NOW);
    if (!handle)
      throw std::runtime_error(dlerror());
    call = reinterpret_cast<decltype(call)>(dlsym(handle, (name + "_forward_zero").c_str()));
    y.setZero(size);
  }

  const Vector & operator()(const double * x)
  {
    double * out = y.data();
    call(&x, &out, None{});
    return y;
  }
};

struct Robot
{
  pin::Model model;
  pin::Data data;
  pin::FrameIndex frame;
  Generated rnea, aba, crba, rnea_derivatives, aba_derivatives;
  Vector x;

  Robot(const pin::Model & m)
  : model(m), data(m), frame(m.getFrameId("link")), x(3 * m.nv)
  {
  }
};

extern "C" Robot * make(int n, const double * placements, const double * inertias, const double * link)
{
  return new Robot(chain(n, placements, inertias, link));
}

extern "C" void load(Robot * r)
{
  const int n = r->model.nv;
  r->rnea.load("cg_rnea_eval", "rnea", n);
  r->aba.load("cg_aba_eval", "aba", n);
  r->crba.load("cg_crba_eval", "crba", n * (n + 1) / 2);
  r->rnea_derivatives.load("cg_partial_rnea_eval", "partial_rnea", 3 * n * n);
  r->aba_derivatives.load("cg_partial_aba_eval", "partial_aba", 3 * n * n);
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

static void
generated(Robot & r, int what, const In & q, const In & v, const In & w, const double * cot, double * out, double * grad)
{
  const int n = r.model.nv;
  r.x << q, v, w;
  const double * x = r.x.data();
  if (what == RNEA)
    Out(out, n) = r.rnea(x);
  if (what == RNEA && grad)
    pull(grad, n, r.rnea_derivatives(x), In(cot, n));
  if (what == CRBA)
  {
    // its upper triangle, row by row
    const Vector & y = r.crba(x);
    long at = 0;
    for (int i = 0; i < n; ++i)
      for (int j = i; j < n; ++j, ++at)
        out[i * n + j] = out[j * n + i] = y[at];
  }
  if (what == ABA)
    Out(out, n) = r.aba(x);
  if (what == ABA && grad)
    pull(grad, n, r.aba_derivatives(x), In(cot, n));
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
