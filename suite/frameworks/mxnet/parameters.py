"""Gluon's parameters under canonical names, and blocks that hold them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from mxnet import gluon, init
from numpy.typing import NDArray

from suite.contract import Parameter
from suite.frameworks.mxnet.framework import Framework, Tensor


def new_parameters(framework: Framework, specified: Iterable[Parameter]) -> Any:
    """A ``ParameterDict`` of zeros without gradients."""
    parameters = gluon.ParameterDict()
    for parameter in specified:
        parameters.get(parameter.name, shape=parameter.shape, dtype=framework.dtype, grad_req="null")
    parameters.initialize(init.Zero(), ctx=framework.context)  # without draws from dropout's random stream
    return parameters


def add_constants(parameters: Any, framework: Framework, values: Mapping[str, NDArray[Any]]) -> list[Tensor]:
    """Add arrays that no optimiser updates, such as running statistics, to ``parameters``."""
    constants = []
    for name, value in values.items():
        options = {"grad_req": "null", "differentiable": False}
        constant = parameters.get(name, shape=value.shape, dtype=framework.dtype, **options)
        constant.initialize(init.Zero(), ctx=framework.context)
        constant.set_data(framework.tensor(value))
        constants.append(constant.data())
    return constants


class Block(gluon.HybridBlock):  # type: ignore[misc, unused-ignore]
    """A block that shares ``parameters``: all of them, or those called ``names``.

    Gluon passes them to ``hybrid_forward`` by attribute names, with underscores instead of dots.
    """

    def __init__(self, parameters: Any, names: Iterable[str] | None = None) -> None:
        super().__init__(prefix="", params=parameters)
        self._names: dict[str, str] = {}
        for name in list(parameters if names is None else names):
            attribute = name.replace(".", "_")
            self._names[attribute] = name
            setattr(self, attribute, self.params.get(name))

    def named(self, weight: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Weights by canonical name instead of attribute."""
        return {self._names[attribute]: tensor for attribute, tensor in weight.items()}
