"""The training loop: transformers' Trainer with our data, losses, optimizer, dev run and states."""

import math
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count, islice
from typing import Any

import torch
import transformers
from accelerate.utils import reduce
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from transformers import TrainerCallback, TrainingArguments

from beamrank.errors import BeamrankError, DataError
from beamrank.notes import Progress
from beamrank.storage import files as storage
from models.training.card import card_path, write_card
from models.training.data.store import remove_data
from models.training.initial_model import save_checkpoint
from models.training.report_section import (
    DEV,
    GIVEN,
    STEPS,
    Row,
    TrainingRecord,
    add_rows,
    begin_curves,
    draw_curves,
)
from models.training.session import Session
from models.training.states import TrainState, candidate_folder, candidate_hashes, publish
from models.training.tasks import Tensors

_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-6
_NOT_DECAYED = ("LayerNorm", "layer_norm", "bias")


class BertAdam(torch.optim.Optimizer):
    """Adam as BERT was trained with it (optimization.py of google-research/bert): without bias
    correction.

    For a gradient g: m = .9 m + .1 g, v = .999 v + .001 g^2, and the parameter loses
    learning rate * (m / (sqrt(v) + 1e-6) + weight decay * parameter). Biases and LayerNorm do not
    decay.
    """

    def __init__(
        self, parameters: Iterable[tuple[str, nn.Parameter]], lr: float, weight_decay: float
    ) -> None:
        """Starts with moments of 0; skips parameters without gradients."""
        trained = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]
        groups: list[dict[str, Any]] = [
            {"params": [], "decay": weight_decay},
            {"params": [], "decay": 0.0},
        ]
        for name, parameter in trained:
            groups[any(part in name for part in _NOT_DECAYED)]["params"].append(parameter)
        super().__init__(groups, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Updates the parameters by their gradients."""
        assert closure is None
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            for parameter in parameters:
                if not self.state[parameter]:
                    self.state[parameter] = {
                        name: torch.zeros_like(parameter) for name in ("first", "second")
                    }
            first, second = (
                [self.state[parameter][name] for parameter in parameters]
                for name in ("first", "second")
            )
            gradients = [parameter.grad.to(parameter.dtype) for parameter in parameters]
            torch._foreach_mul_(first, _BETA_1)
            torch._foreach_add_(first, gradients, alpha=1 - _BETA_1)
            torch._foreach_mul_(second, _BETA_2)
            torch._foreach_addcmul_(second, gradients, gradients, 1 - _BETA_2)
            denominators = torch._foreach_sqrt(second)
            torch._foreach_add_(denominators, _EPSILON)
            updates = torch._foreach_div(first, denominators)
            torch._foreach_add_(updates, parameters, alpha=group["decay"])
            torch._foreach_add_(parameters, updates, alpha=-float(group["lr"]))


def learning_rate_at(step: int, peak: float, warmup_steps: int, steps: int) -> float:
    """The learning rate of a step, counted from 0.

    As in BERT's code: step / warmup_steps of the peak during warm-up, so the first step changes
    nothing; then the peak's linear decay to 0 over all steps, counted from step 0.
    """
    return peak * (step / warmup_steps if step < warmup_steps else max(0.0, 1 - step / steps))


def micro_batches(session: Session) -> Iterator[Tensors]:
    """The micro-batches of this process without an end, in the order of a single process; the state
    has their position.

    Not a DataLoader, which draws random numbers; nor skipped when a training resumes: it begins at
    the state.
    """
    state, groups = session.before, session.schedule.groups_per_step
    share = groups // session.processes.num_processes
    size, first = (
        share // session.config.optimizer.accumulation,
        session.processes.process_index * share,
    )
    stream = session.source.stream(state.position)
    for step in count(state.step):
        taken = list(islice(stream, groups))
        state.position = taken[-1][1]
        for start in range(first, first + share, size):
            chosen = [group for group, _ in taken[start : start + size]]
            yield session.task.collate(chosen, step * groups + start)


def train(
    session: Session, stop: Callable[[], bool], progress: Progress, command: str
) -> TrainState:
    """Trains on from the session's state to the end, or until `stop` returns true; then it saves a
    state.

    The model card names the command.
    """
    state, newest, complete = session.before, session.states.newest(), session.before.finished
    if not complete:
        if state.step:
            progress.note(f"resuming after step {state.step:,}")
        elif session.states.is_unfinished():
            progress.note(
                f"no state in {session.states.path} is complete: the training starts over"
            )
        trainer = _Trainer(session, stop, progress)
        # Second moments of unimportant weights are numbers below 1e-38, which slow a step fourfold
        # on a CPU.
        torch.set_flush_denormal(True)
        try:
            trainer.train(resume_from_checkpoint=str(newest) if state.step else None)
        except torch.OutOfMemoryError as error:
            raise BeamrankError(
                f"out of memory on {session.processes.device}: raise optimizer.accumulation from "
                f"{session.config.optimizer.accumulation}, set optimizer.gradient_checkpointing "
                "or dtype bfloat16, freeze the word embeddings (optimizer.train_word_embeddings: "
                "false), or take a smaller start or input.max_length"
            ) from error
        finally:
            torch.set_flush_denormal(False)
        if state.step == session.schedule.steps:
            trainer.finish()
    # Also of a complete training that was killed.
    if state.finished and session.processes.is_main_process:
        remove_data(session.states.path)
        if not (complete and storage.exists(card_path(session.config))):
            write_card(session, state, command)
    return state


class _Trainer(transformers.Trainer, TrainerCallback):
    """transformers' Trainer with our data, loss, optimizer, dev run and states; it is told of its
    own steps.
    """

    loss_is_scaled_for_ga = True

    def __init__(self, session: Session, stop: Callable[[], bool], progress: Progress) -> None:
        config, processes, steps = session.config, session.processes, session.schedule.steps
        optimizer = BertAdam(
            session.model.named_parameters(),
            config.optimizer.learning_rate,
            config.optimizer.weight_decay,
        )
        arguments = TrainingArguments(
            output_dir=str(session.states.path),
            max_steps=steps,
            gradient_accumulation_steps=config.optimizer.accumulation,
            max_grad_norm=config.optimizer.clip_norm,
            bf16=session.dtype == torch.bfloat16,
            use_cpu=processes.device.type == "cpu",
            # A step runs the model several times before its backward pass.
            ddp_broadcast_buffers=False,
            ddp_find_unused_parameters=False,
            seed=config.seed,
            save_strategy="no",
            logging_steps=1,
            logging_nan_inf_filter=False,
            ignore_data_skip=True,
            report_to=list(config.report_to) or "none",
            disable_tqdm=True,
            log_level="error",
            log_level_replica="error",
        )
        # Without torchrun one GPU is used.
        arguments._n_gpu = min(1, arguments.n_gpu)
        warmup = session.schedule.warmup_steps
        scheduler = LambdaLR(optimizer, lambda step: learning_rate_at(step, 1.0, warmup, steps))
        super().__init__(model=session.model, args=arguments, optimizers=(optimizer, scheduler))
        self.remove_callback(transformers.PrinterCallback)
        self.add_callback(self)
        self._session, self._stop, self._progress = session, stop, progress
        self._output, self._first = config.output, processes.is_main_process
        self._saved = time.monotonic()
        self._began = self._saved - session.before.seconds
        if self._first:
            dev = session.dev
            given, measure = (None, None) if dev is None else (dev.first_stage(), dev.measure)
            if given is not None:
                progress.note(f"{GIVEN}: dev {measure} {given:.4f}")
            inputs = session.schedule.groups_per_step * session.inputs_per_group
            begin_curves(
                config.output,
                TrainingRecord(session.kind, steps, inputs, measure, given),
                session.before.step,
            )
        # The weights are the same in each process, the units that dropout skips are not.
        torch.manual_seed(config.seed + 1 + processes.process_index)

    def get_train_dataloader(self) -> Any:
        return micro_batches(self._session)

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: Any
    ) -> tuple[list[Any], Any]:
        """The micro-batches of a step, and what its losses are means of, over all processes."""
        batches, _ = super().get_batch_samples(epoch_iterator, num_batches, device)
        counts = torch.stack([self._session.task.counts(batch) for batch in batches]).sum(dim=0)
        return batches, self.accelerator.reduce(counts.to(device))

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """This process's part of the loss; DistributedDataParallel divides by the number of
        processes.
        """
        loss = (
            self._session.task.loss(model, inputs, num_items_in_batch)
            * self._session.processes.num_processes
        )
        return (loss, {}) if return_outputs else loss

    def floating_point_ops(self, inputs: Any) -> int:  # noqa: ARG002
        return 0

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        metrics = self._measured()
        self._session.processes.wait_for_everyone()
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        return metrics

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ARG002
        """All processes together decide whether to stop and whether to save a state."""
        session, step = self._session, state.global_step
        last = step == session.schedule.steps
        due = self._first and time.monotonic() - self._saved > 60 * session.config.save_minutes
        flags = torch.tensor(
            [self._stop(), due], dtype=torch.int32, device=session.processes.device
        )
        stopping, due = map(bool, reduce(flags, "sum").tolist())
        control.should_evaluate = session.dev is not None and (
            last or step % session.schedule.dev_steps == 0
        )
        # Each measurement also saves a state, so that state and published model belong to the same
        # step.
        control.should_save = not last and (stopping or due or control.should_evaluate)
        control.should_training_stop |= stopping
        session.before.step, session.before.seconds = step, time.monotonic() - self._began

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Checks and records a step."""
        logs: dict[str, float] = kwargs["logs"]
        state.log_history.clear()
        if "loss" not in logs:
            return
        for what, value in (("loss", logs["loss"]), ("gradient", logs["grad_norm"])):
            if not math.isfinite(value):
                raise DataError(
                    f"the {what} is {value} at step {state.global_step}, so the weights are "
                    "unusable from here on: start again with a lower optimizer.learning_rate, a "
                    "longer warm-up, or dtype float32"
                )
        if self._first:
            add_rows(
                self._output, STEPS, [Row(state.global_step, logs["loss"], logs["learning_rate"])]
            )
            self._progress.update(
                state.global_step, self._session.schedule.steps, f"loss {logs['loss']:.4f}"
            )

    def on_save(self, *_: Any, **__: Any) -> None:
        """Completes a checkpoint, which every process has written, then publishes the model that it
        records.
        """
        session = self._session
        session.processes.wait_for_everyone()
        if self._first:
            session.states.complete(session.before)
            publish(self._output, session.before.published)
        session.processes.wait_for_everyone()
        self._saved = time.monotonic()

    def _measured(self) -> dict[str, float]:
        """The measure of the dev run; the best model waits to be published."""
        session, state, dev = self._session, self._session.before, self._session.dev
        if not self._first or dev is None:
            return {}
        self._save_candidate()
        folder = candidate_folder(self._output)
        value = dev.measured(str(folder), session.processes.device.type, torch.get_num_threads())
        add_rows(self._output, DEV, [Row(state.step, value)])
        draw_curves(self._output)
        self._progress.note(f"step {state.step:,}: dev {dev.measure} {value:.4f}")
        if value > state.best_value:
            state.best_step, state.best_value = state.step, value
            state.published = candidate_hashes(self._output)
        else:
            shutil.rmtree(folder, ignore_errors=True)
        return {f"eval_{dev.measure}": value}

    def finish(self) -> None:
        """Publishes the last model if none was measured, and leaves a note that the training is
        complete.
        """
        session, state = self._session, self._session.before
        if self._first:
            if session.dev is None:
                self._save_candidate()
                state.published = candidate_hashes(self._output)
            draw_curves(self._output)
        state.finished = True
        self.on_save()

    def _save_candidate(self) -> None:
        folder, config = candidate_folder(self._output), self._session.config
        save_checkpoint(
            self._session.model, self._session.start.folder, str(folder), config.weights
        )
