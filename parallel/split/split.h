// split(model, mesh, options): the same model, with its layers split over the ranks of a mesh: images by rows, columns
// and planes, weights by rows and columns. What goes in and comes out is whole; names of weights stay as they were.
#pragma once
#include "framework/optim/parameters.h"
#include "parallel/comm/world/mesh.h"
#include "parallel/plan/plan.h"
#include "parallel/strategies/split_options.h"

namespace trireme {

class Grid;  // parallel/split/grid.h

/// A Sequential gets one layer at each end: the first divides x, the last brings the result together.
/// The weights are the model's own; those that are cut are so from then on, in place (write them through
/// framework/io/weights.h, which brings them together). example: an input, of which only shape and type matter; with it
/// strategy tensor goes by the flow of data; leaves_axes_out: as in parallel/split/weights.h. Call before Parameters;
/// a collective call. Layers whose output has fewer rows than there are ranks, and ops that need the whole, get it on
/// every rank. Throws Error for an axis that the mesh does not have and for a dimension smaller than its ranks.
Module split(const Module& model, Mesh&, const SplitOptions&, const Tensor& example = {}, bool leaves_axes_out = false);

/// The mesh axes whose ranks may have different parts of weights.
std::vector<std::string> weight_axes(const SplitOptions&);

/// Of the layers of a model that split() has been at; null: their weights know of none.
std::shared_ptr<const Grid> grid_of(const Parameters&);

/// The mesh axes over which a weight is divided, joined by +: each rank has its own part. Empty: none.
std::string divided_over(const Tensor& weight);
/// The weights of a slice of the flat block whose gradients are not summed over all axes, by these axes
/// (PartInfo::divided).
std::map<std::string, std::vector<Slice>> divided_slices(const Parameters&, const Slice&);

}  // namespace trireme
