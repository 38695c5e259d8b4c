# Finds OpenBLAS as the target OpenBLAS::OpenBLAS, its OpenMP flavour where it is installed. Debian and Ubuntu put the
# flavours side by side, and the system-wide link prefers the pthread one, whose own threads would compete with ours.
# Linking by the full path of the flavour's folder also gives the programs an rpath to it.
find_library(PRIMAL_OPENBLAS openblas
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp NO_DEFAULT_PATH)
find_library(PRIMAL_OPENBLAS openblas)

if(NOT PRIMAL_OPENBLAS)
  set(PRIMAL_BLAS_SUMMARY "none (Eigen's own kernels)")
  message(WARNING "OpenBLAS not found: matrix products use Eigen's own kernels, which are slower")
  return()
endif()

add_library(OpenBLAS::OpenBLAS UNKNOWN IMPORTED)
set_target_properties(OpenBLAS::OpenBLAS PROPERTIES IMPORTED_LOCATION ${PRIMAL_OPENBLAS})

# openblas_get_parallel() is 0 for a sequential build, 1 for pthreads, 2 for OpenMP.
include(CheckCXXSourceRuns)
set(CMAKE_REQUIRED_LIBRARIES OpenBLAS::OpenBLAS)
check_cxx_source_runs("extern \"C\" int openblas_get_parallel(void);
                       int main() { return openblas_get_parallel() == 2 ? 0 : 1; }" PRIMAL_OPENBLAS_IS_OPENMP)
unset(CMAKE_REQUIRED_LIBRARIES)
if(PRIMAL_OPENBLAS_IS_OPENMP)
  set(PRIMAL_BLAS_SUMMARY "OpenBLAS, OpenMP flavour (${PRIMAL_OPENBLAS})")
else()
  set(PRIMAL_BLAS_SUMMARY "OpenBLAS, not the OpenMP flavour (${PRIMAL_OPENBLAS})")
  message(WARNING "OpenBLAS at ${PRIMAL_OPENBLAS} is not its OpenMP flavour: its threads compete with those of the CPU "
                  "kernels; on Debian and Ubuntu install libopenblas-openmp-dev")
endif()
