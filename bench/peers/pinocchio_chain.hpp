// A chain of hinges about z as a model of Pinocchio's.

#pragma once

#include <string>

#include <pinocchio/multibody.hpp>

namespace pin = pinocchio;
using Rows = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// of each body: placement (R row by row, p), and mass, centre of mass, inertia about it; `link` is in the last body
inline pin::Model chain(int n, const double * placements, const double * inertias, const double * link)
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
  return model;
}
