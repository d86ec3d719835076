"""The first 1000 points of Sobol's sequence, unscrambled, by SciPy.   sobol.py FOLDER POINTS (at least 1000) DIMENSIONS"""
import sys

try:
    import numpy
    from scipy.stats import qmc
except ImportError:
    sys.exit(77)

folder, points, dimensions = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
numpy.save(f"{folder}/points.npy", qmc.Sobol(dimensions, scramble=False).random(points)[:1000].astype(numpy.float64))
