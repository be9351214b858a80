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
    made = gluon.ParameterDict()
    for parameter in specified:
        made.get(parameter.name, shape=parameter.shape, dtype=framework.dtype, grad_req="null")
    made.initialize(init.Zero(), ctx=framework.context)  # does not use the random stream, as dropout does
    return made


def add_constants(parameters: Any, framework: Framework, values: Mapping[str, NDArray[Any]]) -> list[Tensor]:
    """Add arrays that no optimiser updates, such as running statistics, to ``parameters``."""
    constants = []
    for name, value in values.items():
        options = {"grad_req": "null", "differentiable": False}
        made = parameters.get(name, shape=value.shape, dtype=framework.dtype, **options)
        made.initialize(init.Zero(), ctx=framework.context)
        made.set_data(framework.tensor(value))
        constants.append(made.data())
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
