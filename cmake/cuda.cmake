# Turns the CUDA language on, after checking that nvcc is there and accepts this host compiler: the toolkit itself would
# fail on a wrong pair deep inside its own headers.
find_program(PRIMAL_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
if(CMAKE_CUDA_COMPILER)
  set(PRIMAL_NVCC ${CMAKE_CUDA_COMPILER})
elseif(DEFINED ENV{CUDACXX})
  set(PRIMAL_NVCC $ENV{CUDACXX})
endif()
if(NOT PRIMAL_NVCC OR NOT EXISTS ${PRIMAL_NVCC})
  message(FATAL_ERROR "PRIMAL_CUDA=ON needs nvcc from the CUDA Toolkit 12.0 or newer, found '${PRIMAL_NVCC}'. Put nvcc into "
                      "PATH, set CMAKE_CUDA_COMPILER to it, or build for the CPU with PRIMAL_CUDA=OFF.")
endif()

execute_process(COMMAND ${PRIMAL_NVCC} --version OUTPUT_VARIABLE nvcc_text RESULT_VARIABLE nvcc_result ERROR_QUIET)
if(NOT nvcc_text MATCHES "release ([0-9]+\\.[0-9]+)")
  message(FATAL_ERROR "'${PRIMAL_NVCC} --version' tells no release (exit ${nvcc_result}): is it nvcc?")
endif()
set(PRIMAL_NVCC_VERSION ${CMAKE_MATCH_1})
if(PRIMAL_NVCC_VERSION VERSION_LESS 12.0)
  message(FATAL_ERROR "nvcc 12.0 or newer is needed for C++20, found ${PRIMAL_NVCC_VERSION} (${PRIMAL_NVCC})")
endif()

# The newest g++ that this toolkit takes stands in its own header.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_CUDA_HOST_COMPILER)
  file(REAL_PATH ${PRIMAL_NVCC} nvcc_file)
  get_filename_component(toolkit ${nvcc_file} DIRECTORY)
  get_filename_component(toolkit ${toolkit} DIRECTORY)
  file(GLOB host_config ${toolkit}/include/crt/host_config.h ${toolkit}/targets/*/include/crt/host_config.h)
  if(host_config)
    list(GET host_config 0 host_config)
    file(STRINGS ${host_config} newest REGEX "gcc versions later than [0-9]+")
    if(newest MATCHES "gcc versions later than ([0-9]+)" AND
       CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL "${CMAKE_MATCH_1}.99")
      message(FATAL_ERROR "nvcc ${PRIMAL_NVCC_VERSION} takes g++ up to ${CMAKE_MATCH_1}, found g++ ${CMAKE_CXX_COMPILER_VERSION}. "
                          "Choose another with CMAKE_CXX_COMPILER, or a newer CUDA Toolkit.")
    endif()
  endif()
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()

set(CMAKE_CUDA_COMPILER ${PRIMAL_NVCC})
if(NOT CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 80 90)  # newer ones in between compile the code of the one before when they first run it
  if(PRIMAL_NVCC_VERSION VERSION_GREATER_EQUAL 12.8)
    list(APPEND CMAKE_CUDA_ARCHITECTURES 120)
  endif()
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc has it
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
find_package(CUDAToolkit REQUIRED)
