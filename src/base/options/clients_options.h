/* clients_options.h - options of [clients]: logical clients, simulated time and links. */
#ifndef DL_BASE_OPTIONS_CLIENTS_OPTIONS_H
#define DL_BASE_OPTIONS_CLIENTS_OPTIONS_H

#include "base/option_rows.h"

// clang-format off
/* A client's upload: its movement, or its parameters after training (exchange/contribute.c). A
 * reader turns parameters into a movement before it uses them. */
#define DL_PAYLOADS(X) \
    X(DL_PAYLOAD_DELTA, "delta") \
    X(DL_PAYLOAD_WEIGHTS, "weights")

/* A worker that finds no valid private state of a client stops, or trains it with inner moments of
 * zero (clients/turns.c). */
#define DL_LOST_STATES(X) \
    X(DL_LOST_STATE_STOP, "stop") \
    X(DL_LOST_STATE_RESET, "reset")

/* Distributions of a simulated client's extra seconds (protocol/simulated_time.c). */
#define DL_SLEEPS(X) \
    X(DL_SLEEP_NORMAL, "normal") \
    X(DL_SLEEP_UNIFORM, "uniform") \
    X(DL_SLEEP_PARETO, "pareto") \
    X(DL_SLEEP_ZIPF, "zipf")

#define DL_CLIENTS_CHOICES(X) \
    X(dl_payload_choice, DL_PAYLOADS) \
    X(dl_lost_state_choice, DL_LOST_STATES) \
    X(dl_sleep_choice, DL_SLEEPS)

/* Logical clients of a federated run (docs/federated.md), and the simulation of their speed and
 * presence. */
#define DL_CLIENTS_OPTIONS(X) \
    X(NAME, client_type, "clients.type", "simple", "", DL_OPTION_AGREE | DL_OPTION_FIXED, \
      "Kind of logical client. Only simple, which trains.") \
    X(PATH, outbound, "clients.outbound_processors", "", "names", DL_OPTION_AGREE | DL_OPTION_FIXED, \
      "Processors of what a client sends. Only none: it sends the tensors of the model and nothing else.") \
    X(PATH, inbound, "clients.inbound_processors", "", "names", DL_OPTION_AGREE | DL_OPTION_FIXED, \
      "Processors of what a client receives. Only none.") \
    X(INT(0, 1e9), total_clients, "clients.total_clients", "0", "clients", DL_OPTION_AGREE, \
      "Logical clients, each with data and inner state of its own; 0: none, and replicas train as they are.", \
      .needs = "swarm.consensus = log") \
    X(INT(0, 65536), per_round, "clients.per_round", "0", "clients", DL_OPTION_AGREE, \
      "Clients drawn for each round; 0: all of them.", \
      .applies_when = "clients.total_clients") \
    X(PATH, client_state, "clients.state", "", "url", 0, \
      "URL of a private store that workers share for the clients' inner state. Default: run.state_dir/clients.", \
      .applies_when = "clients.total_clients") \
    X(CHOICE(dl_payload_choice), payload, "clients.payload", "delta", "", DL_OPTION_AGREE, \
      "Content of a client's upload: how far its parameters moved (delta), or the parameters (weights). The shared model is the same.", \
      .applies_when = "clients.total_clients") \
    X(CHOICE(dl_lost_state_choice), on_lost_state, "clients.on_lost_state", "stop", "", 0, \
      "What happens when a client's state is missing or damaged: stop, or reset its optimizer with a warning.", \
      .applies_when = "clients.total_clients") \
    X(BOOL, speed_simulation, "clients.speed_simulation", "false", "", DL_OPTION_AGREE, \
      "Whether clients take simulated time. Rounds then close by it, and elapsed_time counts it.", \
      .applies_when = "clients.total_clients") \
    X(REAL(1e-3, 1e9), training_s, "clients.avg_training_time", "10", "seconds", DL_OPTION_AGREE, \
      "Simulated seconds that the fastest client trains in a round.", \
      .applies_when = "clients.speed_simulation") \
    X(CHOICE(dl_sleep_choice), sleep_distribution, "clients.simulation_distribution.distribution", "pareto", "", DL_OPTION_AGREE, \
      "Distribution of the seconds by which each client is slower, drawn once for all of its rounds.", \
      .applies_when = "clients.speed_simulation") \
    X(REAL(-1e9, 1e9), sleep_mean, "clients.simulation_distribution.mean", "10", "seconds", DL_OPTION_AGREE, \
      "Mean of distribution = normal.", \
      .applies_when = "clients.simulation_distribution.distribution = normal") \
    X(REAL(0, 1e9), sleep_sd, "clients.simulation_distribution.sd", "3", "seconds", DL_OPTION_AGREE, \
      "Standard deviation of distribution = normal.", \
      .applies_when = "clients.simulation_distribution.distribution = normal") \
    X(REAL(0, 1e9), sleep_low, "clients.simulation_distribution.low", "0", "seconds", DL_OPTION_AGREE, \
      "Lower end of distribution = uniform.", \
      .applies_when = "clients.simulation_distribution.distribution = uniform") \
    X(REAL(0, 1e9), sleep_high, "clients.simulation_distribution.high", "10", "seconds", DL_OPTION_AGREE, \
      "Upper end of distribution = uniform.", \
      .applies_when = "clients.simulation_distribution.distribution = uniform") \
    X(REAL(1e-3, 1e3), sleep_alpha, "clients.simulation_distribution.alpha", "1", "", DL_OPTION_AGREE, \
      "Shape of distribution = pareto (Lomax, from 0). A small value makes a few clients very slow.", \
      .applies_when = "clients.simulation_distribution.distribution = pareto") \
    X(REAL(1e-3, 1e3), sleep_s, "clients.simulation_distribution.s", "1.2", "", DL_OPTION_AGREE, \
      "Exponent of distribution = zipf; above 1.", \
      .applies_when = "clients.simulation_distribution.distribution = zipf") \
    X(REAL(0, 1e9), max_sleep_s, "clients.max_sleep_time", "60", "seconds", DL_OPTION_AGREE, \
      "Most seconds by which a client is slower.", \
      .applies_when = "clients.speed_simulation") \
    X(REAL(1e-6, 1), availability, "clients.availability", "1", "", DL_OPTION_AGREE, \
      "Probability that a client is available in a round, simulated.", \
      .applies_when = "clients.speed_simulation") \
    X(REAL(0, 0.999999), dropout, "clients.dropout", "0", "", DL_OPTION_AGREE, \
      "Probability that a selected client never answers, simulated.", \
      .applies_when = "clients.speed_simulation") \
    X(REAL(0, 1e9), bandwidth, "clients.bandwidth", "0", "Mbit/s", DL_OPTION_AGREE, \
      "Median of the clients' simulated links in either direction; 0: only the server's links limit them.", \
      .applies_when = "clients.speed_simulation") \
    X(REAL(0, 10), bandwidth_sigma, "clients.bandwidth_sigma", "0", "", DL_OPTION_AGREE, \
      "Standard deviation of the logarithm of the clients' bandwidth; 1: most links are between a third and three times the median.", \
      .applies_when = "clients.speed_simulation") \
    X(INT(0, 9e15), simulation_seed, "clients.random_seed", "1", "", DL_OPTION_AGREE, \
      "Seed of all simulated draws.", \
      .applies_when = "clients.speed_simulation") \
    X(REAL(0, 1e9), server_down, "server.downlink_bandwidth", "100", "Mbit/s", DL_OPTION_AGREE, \
      "Simulated bandwidth to the clients of a round together; 0: no limit.", \
      .applies_when = "clients.speed_simulation") \
    X(REAL(0, 1e9), server_up, "server.uplink_bandwidth", "100", "Mbit/s", DL_OPTION_AGREE, \
      "Simulated bandwidth from the clients of a round together; 0: no limit.", \
      .applies_when = "clients.speed_simulation")
// clang-format on

DL_CLIENTS_CHOICES(DL_CHOICE)
DL_OPTION_STRUCT(clients, DL_CLIENTS_OPTIONS)

#endif
